// What the NVRTC of version 99.1 in fake_nvrtc.cc opens.
extern "C" int fake_builtins() { return 0; }
