// What programs asked for, made on another machine.
#include <fstream>
#include <set>

#include "cli/manifest.h"
#include "cubinery/context.h"
#include "cubinery/gdn.h"
#include "tests/cache/child.h"
#include "tests/cache/temp_dir.h"
#include "tests/cli/run_cli.h"

namespace cubinery::record_test {
namespace {

const gdn::DecodeProblem kDecode{.key_dim = 64, .value_dim = 64};

// A kernel of somebody's own, whose header is in a folder.
KernelSource scale_in(const std::string& folder) {
  fs::create_directories(folder);
  std::ofstream(folder + "/by.h") << "#pragma once\n#define BY 2.0f\n";
  return {.name = "scale",
          .source =
              "#include \"by.h\"\n__global__ void scale(float* x) {\n"
              "  x[threadIdx.x] *= BY * MORE;\n}\n",
          .includes = {folder},
          .options = {"-DMORE=3.0f"}};
}

Options offline_options(const std::string& cache) {
  Options options = Options::from_env().value();
  options.device = kNoDevice;
  options.arch = "sm_90a";
  options.offline = true;
  options.cache_dir = cache;
  options.cache_layers.clear();
  return options;
}

// As a program has them that CUBINERY_RECORD is set for.
Options recording_options(const std::string& file) {
  ::setenv("CUBINERY_RECORD", file.c_str(), 1);
  Options options = offline_options("/nowhere");
  ::unsetenv("CUBINERY_RECORD");
  options.arch = "sm_80";
  options.use_disk_cache = false;
  return options;
}

bool is_all_there(const Options& options, const KernelSource& source) {
  const Context context = Context::create(options).value();
  const auto own = context.compile(source);
  const auto decode = context.compile(kDecode);
  return own && own->source == Source::kDisk && decode && decode->front().source == Source::kDisk;
}

TEST_CASE("what a run asked for is made without a GPU, and found", "[nvrtc]") {
  const Cli cli;
  const std::string manifest = cli.dir() + "/kernels.json";
  const KernelSource source = scale_in(cli.dir() + "/inc");
  {
    const Context program = Context::create(recording_options(manifest)).value();
    CHECK(program.compile(source).error().code() == Code::kNotCached);
    CHECK(program.compile(kDecode).error().code() == Code::kNotCached);
  }
  const std::string arguments = "--manifest " + manifest + " --arch sm_90a";
  const json made = cli.prewarm(arguments + " --verify");
  CHECK(made["problems"] == 2);
  CHECK(made["compiled"] == made["requested"]);
  CHECK(made["entries"][0]["kernel"] == "scale");
  CHECK(made["entries"][0]["canonical"] == "source;name=scale;allow_spills=true");
  CHECK(made["entries"][1]["kernel"] == "gdn_decode");
  CHECK(is_all_there(offline_options(cli.cache()), source));

  const std::string pack = cli.dir() + "/my.pack";
  REQUIRE(cli.run("cache export -o " + pack).exit_code == 0);
  Options packed = offline_options(cli.dir() + "/empty");
  packed.cache_layers = {pack};
  CHECK(is_all_there(packed, source));

  const std::string count = std::to_string(made["requested"].get<int>());
  CHECK(cli.run("explain " + arguments).out == count + " of " + count + " cached\n");
  // The same text in a file, by its options.
  std::ofstream(cli.dir() + "/scale.cu") << source.source;
  const std::string file = "--source-file " + cli.dir() + "/scale.cu -I " + cli.dir() +
                           "/inc --compile-option -DMORE=3.0f --arch sm_90a";
  CHECK(cli.prewarm("--dry-run --function scale " + file)["hits"] == 1);
  CHECK(contains(cli.run("explain --verbose --function scale " + file).out,
                 "scale for sm_90a: cached\n"));

  std::ofstream(cli.dir() + "/inc/by.h") << "#define BY 4.0f\n";
  CHECK_FALSE(is_all_there(packed, source));
  const Status miss = Context::create(packed).value().compile(source).error().clone();
  CHECK(miss.code() == Code::kNotCached);
  CHECK(contains(cli.run("explain " + arguments).out,
                 "1 of " + count +
                     " missing; nearest differ in what it includes; run: cubinery "
                     "prewarm --manifest "));
  CHECK(cli.prewarm(arguments)["compiled"] == 1);
}

TEST_CASE("processes record into one file", "[cpu]") {
  const Cli cli;
  const std::string manifest = cli.dir() + "/kernels.json";
  constexpr int kKernels = 20;
  const auto source_of = [](int number) {
    const std::string name = "k" + std::to_string(number);
    // Longer than what pipes and pages have at a time.
    return KernelSource{.name = name,
                        .source = "__global__ void " + name + "() {}\n//" + std::string(9000, 'x')};
  };
  std::vector<pid_t> children;
  children.reserve(8);
  for (int child = 0; child < 8; ++child) {
    children.push_back(test::start_child([&] {
      const Result<Context> context = Context::create(recording_options(manifest));
      for (int i = 0; i < kKernels; ++i) {
        const auto made = context->compile(source_of((i + child) % kKernels));
        if (made || made.error().code() != Code::kNotCached) return 1;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) CHECK(test::wait_for(child) == 0);
  std::ifstream file(manifest);
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    ++lines;
    CHECK(json::parse(line).contains("source"));
  }
  CHECK(lines == 8 * kKernels);
  LeftOuts left_out;
  const auto requests = read_manifest(manifest, test::read_bytes(manifest), &left_out).value();
  CHECK(left_out.empty());
  std::set<std::string> names;
  for (const Request& request : requests) names.insert(request.own_kernel->name());
  CHECK(names.size() == kKernels);
  CHECK(requests.size() == kKernels);
}

TEST_CASE("texts of a manifest are dealt to machines, and printed again", "[cpu]") {
  const Cli cli;
  std::ofstream(cli.dir() + "/k.cu") << "__global__ void k() {}\n";
  std::ofstream(cli.dir() + "/list.json")
      << R"([{"source":{"name":"k","file":"k.cu"}},{"source":{"name":"k","file":"k.cu",)"
      << R"("options":["-DX=1"]},"arch":"sm_80"},{"source":{"name":"k","source":"other"}}])";
  const std::string manifest = "--manifest " + cli.dir() + "/list.json";
  std::size_t dealt = 0;
  for (const char* shard : {"1/2", "2/2"}) {
    dealt += cli.prewarm("--dry-run --arch sm_80 " + manifest + " --shard " + shard)["requested"]
                 .get<std::size_t>();
  }
  CHECK(dealt == 3);
  const Output printed = cli.run("problems " + manifest);
  CHECK(printed.out ==
        "[\n  {\"source\":{\"name\":\"k\",\"source\":\"__global__ void k() {}\\n\"}},\n"
        "  {\"arch\":\"sm_80\",\"source\":{\"name\":\"k\",\"source\":\"__global__ void k() "
        "{}\\n\",\"options\":[\"-DX=1\"]}},\n  "
        "{\"source\":{\"name\":\"k\",\"source\":\"other\"}}\n]\n");
  CHECK(contains(cli.run("tune --dry-run --arch sm_80 " + manifest).err,
                 "entry 1: k is no kernel of the library"));
}

TEST_CASE("a cut line is left out by commands, and said", "[cpu]") {
  const Cli cli;
  const std::string manifest = cli.dir() + "/kernels.json";
  std::ofstream(manifest) << "{\"source\":{\"name\":\"k\",\"source\":\"x\"}}\n{\"source\":{\"na";
  const Output output = cli.run("prewarm --dry-run --json - --arch sm_80 --manifest " + manifest);
  CHECK(output.exit_code == 3);
  CHECK(contains(output.err, "left out: line 2 of " + manifest + ": it ends before its object"));
  const json summary = json::parse(output.out);
  CHECK(summary["requested"] == 1);
  CHECK(summary["left_out"][0]["what"] == "line 2");
}

TEST_CASE("a file's kernel that cannot be says why", "[cpu]") {
  const Cli cli;
  const std::string file = cli.dir() + "/k.cu";
  std::ofstream(file) << "__global__ void k() {}\n";
  const auto refused = [&](const std::string& arguments) {
    const Output output = cli.run("prewarm --dry-run --arch sm_80 " + arguments);
    CHECK(output.exit_code == 2);
    return output.err;
  };
  CHECK(contains(refused("--function k"), "are of --source-file, which is missing"));
  CHECK(contains(refused("--source-file /nowhere.cu"),
                 "--source-file /nowhere.cu: source: cannot read /nowhere.cu: No such file"));
  CHECK(contains(refused("--function 'a b' --source-file " + file),
                 "--source-file " + file + ": source: name is \"a b\"; accepted: "));
  CHECK(contains(refused("--compiler gcc --source-file " + file),
                 "--compiler gcc; accepted: nvrtc, nvcc"));
  CHECK(contains(refused("--op gdn_decode --source-file " + file), "--op gdn_decode: none of"));
}

// Commands make what programs asked for, and are none of those.
TEST_CASE("commands record nothing", "[cpu]") {
  const Cli cli;
  const std::string manifest = cli.dir() + "/kernels.json";
  const Output output =
      cli.run("prewarm --dry-run --key-dim 64 --arch sm_80", "CUBINERY_RECORD=" + manifest);
  CHECK(output.exit_code == 0);
  CHECK_FALSE(fs::exists(manifest));
}

}  // namespace
}  // namespace cubinery::record_test
