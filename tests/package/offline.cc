// README's programs, offline on a fake libcuda: they must find what README's prewarm left in the
// cache.
//   offline FAKE_DRIVER CONFIG
// The environment names the cache and the driver.
#define main readme_main
#include "engine.cc"
#undef main

#include <dlfcn.h>

#include "cubinery/c_api.h"
#include "tests/data/fake_driver.h"

extern "C" int prepare_decode(const CubineryContext* context, const char* config,
                              CubineryDecode** decode);

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) return std::puts(dlerror()), 65;
  auto* const settings = reinterpret_cast<test::FakeSettings* (*)()>(
      dlsym(library, "fake_driver_settings"))();
  std::ifstream file(argv[2]);
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  const gdn::ModelProblems model = gdn::problems_for_model(config, 2).value();
  for (const KernelSpec& spec : model.decode.kernels("sm_90a").value()) {
    settings->param_bytes[spec.kernel] = spec.param_bytes;
  }
  for (const KernelSpec& spec : model.prefill.kernels("sm_90a").value()) {
    settings->param_bytes[spec.kernel] = spec.param_bytes;
  }

  if (const int status = readme_main(argc - 1, argv + 1); status != 0) return status;
  const Context context = Context::create(Options::from_env().value()).value();
  context.prepare(model.prefill).value();
  if (context.stats().disk_hits == 0) return 66;

  CubineryContext* c_context = nullptr;
  CubineryDecode* decode = nullptr;
  if (cubinery_context_create(nullptr, &c_context) != CUBINERY_OK ||
      prepare_decode(c_context, config.c_str(), &decode) != CUBINERY_OK) {
    return std::puts(cubinery_last_error()), 67;
  }
  cubinery_decode_destroy(decode);
  cubinery_context_destroy(c_context);
  return 0;
}
