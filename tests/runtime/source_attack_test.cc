// What may go wrong with the cache of a text, one thing each: the kernel is made again or the error
// says why it cannot be, and never is another cubin loaded.  A fake libcuda loads.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "cache/entry_file.h"
#include "cache/store.h"
#include "codegen/identity.h"
#include "cubinery/context.h"
#include "runtime/jit/kernel_info.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"

namespace cubinery::source_attack_test {
namespace {

using test::FakeDriver;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

// A text that includes a header, a cache that has its kernel, and processes that come later.
struct Bench {
  explicit Bench(Compiler compiler) : source{text("add", compiler)} {
    write_header("constexpr int kStep = 1;");
    entry = Context::create(options()).value().compile(source)->path;
  }

  KernelSource text(const char* name, Compiler compiler) const {
    return {.name = name,
            .source = std::string("#include \"step.h\"\nextern \"C\" __global__ void ") + name +
                      "(int* x) { *x += kStep; }",
            .includes = {dir.path() + "/include"},
            .compiler = compiler};
  }
  void write_header(const char* bytes) const {
    std::filesystem::create_directories(dir.path() + "/include");
    write_bytes(header(), bytes);
  }
  std::string header() const { return dir.path() + "/include/step.h"; }
  Options options() const {
    return {.driver_path = CUBINERY_FAKE_DRIVER, .cache_dir = dir.path() + "/cache"};
  }

  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  TempDir dir;
  KernelSource source;
  std::string entry;
};

Compiler any_compiler() { return GENERATE(Compiler::kNvrtc, Compiler::kNvcc); }

// That a process to come makes the kernel again, and one that may not says so.
void check_made_again(const Bench& bench, Code offline_code = Code::kNotCached) {
  Options offline = bench.options();
  offline.offline = true;
  const Result<Kernel> refused = Context::create(offline).value().get(bench.source);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == offline_code);
  const Context context = Context::create(bench.options()).value();
  const Result<Kernel> kernel = context.get(bench.source);
  REQUIRE(kernel);
  CHECK(kernel->info().symbol == "add");
  CHECK(context.stats().compiles == 1);
  const Context later = Context::create(bench.options()).value();
  CHECK(later.get(bench.source));
  CHECK(later.stats().compiles == 0);
}

TEST_CASE("ADamagedEntryOfATextIsMadeAgain", "[nvrtc][source]") {
  const Bench bench(any_compiler());
  const std::string good = read_bytes(bench.entry);
  const auto damage = [&](const std::string& bytes) {
    write_bytes(bench.entry, bytes);
    check_made_again(bench);
  };
  damage("");                               // a full disk, a killed copy
  damage(good.substr(0, good.size() - 1));  // cut
  damage(good + "x");                       // grown
  damage(std::string(good.size(), '\0'));   // a file system after a crash
  for (const std::size_t at : {std::size_t{0}, good.size() / 3, good.size() - 1}) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    damage(flipped);
  }
}

TEST_CASE("AnEntryUnderAnotherTextsNameIsNotLoaded", "[nvrtc][source]") {
  const Bench bench(any_compiler());
  const Context context = Context::create(bench.options()).value();
  const auto take = [&](const KernelSource& other) {
    const std::string from = context.compile(other)->path;
    std::filesystem::copy_file(from, bench.entry,
                               std::filesystem::copy_options::overwrite_existing);
    check_made_again(bench);
  };
  take(bench.text("sub", bench.source.compiler));
  // The same function by the other compiler.
  take(bench.text("add",
                  bench.source.compiler == Compiler::kNvcc ? Compiler::kNvrtc : Compiler::kNvcc));
  KernelSource optioned = bench.source;
  optioned.options = {"--maxrregcount=32"};
  take(optioned);
}

TEST_CASE("ACubinThatIsNotTheEntrysIsNotLoaded", "[nvrtc][source]") {
  const Bench bench(any_compiler());
  Options other = bench.options();
  other.cache_dir = bench.dir.path() + "/other";
  // None at all, one without the kernel, and one of another architecture.
  std::vector<std::string> cubins{"no ELF file"};
  const auto keep_cubin = [&](const KernelSource& of, const Options& options) {
    const std::string path = Context::create(options).value().compile(of)->path;
    cubins.push_back(read_entry_file(*posix_env(), path, Trust{}).entry->cubin);
  };
  keep_cubin(bench.text("sub", bench.source.compiler), other);
  Options of_80 = other;
  of_80.device = kNoDevice;
  of_80.arch = "sm_80";
  keep_cubin(bench.source, of_80);
  for (const std::string& cubin : cubins) {
    Entry entry = *read_entry_file(*posix_env(), bench.entry, Trust{}).entry;
    entry.cubin = cubin;
    Store store({.dir = bench.options().cache_dir});
    REQUIRE(store.publish(entry, [](const Entry&) { return std::optional<std::string>("bad"); }));
    INFO(cubin.size());
    // What fits the identity and has no such kernel is told apart.
    check_made_again(bench, &cubin == &cubins[1] ? Code::kCompileFailed : Code::kNotCached);
  }
}

TEST_CASE("AnEditIsSeenWhateverItsTimeAndSize", "[nvrtc][source]") {
  const Bench bench(any_compiler());
  const auto time = std::filesystem::last_write_time(bench.header());
  bench.write_header("constexpr int kStep = 2;");
  std::filesystem::last_write_time(bench.header(), time);
  check_made_again(bench);
  // What was is found again.
  bench.write_header("constexpr int kStep = 1;");
  const Context context = Context::create(bench.options()).value();
  CHECK(context.compile(bench.source)->path == bench.entry);
  CHECK(context.stats().compiles == 0);

  SECTION("a file that appears in a folder before") {
    KernelSource two = bench.source;
    two.includes.insert(two.includes.begin(), bench.dir.path() + "/before");
    CHECK(context.compile(two)->path == bench.entry);  // no path is in the identity
    std::filesystem::create_directories(bench.dir.path() + "/before");
    write_bytes(bench.dir.path() + "/before/step.h", "constexpr int kStep = 3;");
    CHECK(context.compile(two)->source == Source::kCompiled);
  }
  SECTION("a link that leads elsewhere") {
    write_bytes(bench.dir.path() + "/elsewhere.h", "constexpr int kStep = 4;");
    std::filesystem::remove(bench.header());
    std::filesystem::create_symlink(bench.dir.path() + "/elsewhere.h", bench.header());
    CHECK(context.compile(bench.source)->source == Source::kCompiled);
  }
}

// An entry lists what its text includes: where folders still have that, no directive is looked for.
TEST_CASE("AnEntrysOwnListOfHeadersDecides", "[nvrtc][source]") {
  const Bench bench(any_compiler());
  const EntryFile file = read_entry_file(*posix_env(), bench.entry, Trust{});
  REQUIRE(file.entry);
  const std::string questions = questions_in(file.entry->metadata);
  CHECK(questions.ends_with("\n+ 0 step.h\n"));
  // A list of nothing fits any folder.
  Entry entry = *file.entry;
  KernelInfo info;
  REQUIRE(read_metadata(entry.metadata, &info));
  entry.metadata = metadata_json(info, "1 1 " + digest_of("") + "\n");
  Store store({.dir = bench.options().cache_dir});
  REQUIRE(store.publish(entry, [](const Entry&) { return std::optional<std::string>("bad"); }));
  bench.write_header("constexpr int kStep = 2;");
  const Context context = Context::create(bench.options()).value();
  CHECK(context.get(bench.source));
  CHECK(context.stats().compiles == 0);
  CHECK(context.explain(bench.source).error().message() ==
        "add.cu: what it includes has changed since it was asked for; ask again");
  // One that cannot be read as such is none.
  entry.metadata = metadata_json(info, "no list");
  REQUIRE(store.publish(entry, [](const Entry&) { return std::optional<std::string>("bad"); }));
  check_made_again(bench);
}

TEST_CASE("HeadersThatGoBackToWhatTheyWereAreFoundAgain", "[nvrtc][source]") {
  const Bench bench(any_compiler());
  for (int edit = 2; edit < 12; ++edit) {
    bench.write_header(("constexpr int kStep = " + std::to_string(edit) + ";").c_str());
    CHECK(Context::create(bench.options()).value().compile(bench.source)->source ==
          Source::kCompiled);
  }
  for (int edit = 1; edit < 12; ++edit) {
    bench.write_header(("constexpr int kStep = " + std::to_string(edit) + ";").c_str());
    CHECK(Context::create(bench.options()).value().compile(bench.source)->source == Source::kDisk);
  }
}

TEST_CASE("ATextNeedsNoCacheThatCanBeWritten", "[nvrtc][source]") {
  const Bench bench(any_compiler());
  Options options = bench.options();
  options.cache_dir = bench.dir.path() + "/file/cache";  // below a file: root cannot either
  write_bytes(bench.dir.path() + "/file", "");
  std::string said;
  options.log = [&](LogLevel, std::string_view text) { said += text; };
  const Context context = Context::create(options).value();
  const Result<Kernel> kernel = context.get(bench.source);
  REQUIRE(kernel);
  CHECK(context.stats().failed_writes == 1);
  CHECK(said.find("file") != std::string::npos);
  CHECK(context.get(bench.source));
  CHECK(context.stats().compiles == 1);
}

}  // namespace
}  // namespace cubinery::source_attack_test
