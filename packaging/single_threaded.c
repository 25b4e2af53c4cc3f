/* What the C++ runtime of a newer compiler asks of the C library (glibc 2.32), for those that have
 * it not: 0 says that there may be other threads, so it counts with atomics always. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
