// What a context was asked for, in a file.  Offline: what is missing is recorded as well.
#include "runtime/jit/recorder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cubinery/gdn.h"
#include "cubinery/gdn_models.h"
#include "tests/cache/child.h"
#include "tests/runtime/twice_template.h"

namespace cubinery::recorder_test {
namespace {

using test::context_of;
using test::twice_spec;

const KernelSource kScale{.name = "scale", .source = "__global__ void scale(float* x) {}\n"};

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(test::read_bytes(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// Contexts that record, and compile nothing.
class Recording {
 public:
  std::string file() const { return shop_.path("kernels.json"); }
  std::vector<std::string> lines() const { return lines_of(file()); }
  const test::Workshop& shop() const { return shop_; }

  Options options() {
    Options options = shop_.options();
    options.offline = true;
    options.record = file();
    return options;
  }
  Context context() { return context_of(options()); }

 private:
  test::Workshop shop_;
};

template <class T>
bool is_not_cached(const Result<T>& made) {
  return !made && made.error().code() == Code::kNotCached;
}

TEST_CASE("WhatIsAskedForIsRecordedOnce", "[cpu]") {
  Recording recording;
  const gdn::DecodeProblem decode{.key_dim = 64};
  const Context context = recording.context();
  CHECK_FALSE(std::filesystem::exists(recording.file()));
  for (int i = 0; i < 2; ++i) {
    CHECK(is_not_cached(context.compile(kScale)));
    CHECK(is_not_cached(context.compile(twice_spec())));
    CHECK(is_not_cached(context.compile(decode)));
  }
  const std::vector<std::string> expected = {
      "{\"source\":" + to_json(kScale) + "}", "{\"spec\":" + to_json(twice_spec()) + "}",
      "{\"op\":\"gdn_decode\"," + decode.to_json().substr(1)};
  CHECK(recording.lines() == expected);
  struct stat info {};
  REQUIRE(::stat(recording.file().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  // Another context was asked for it as well.
  CHECK(is_not_cached(recording.context().compile(kScale)));
  CHECK(recording.lines().size() == 4);
  CHECK(recording.lines().back() == expected.front());
}

TEST_CASE("ProblemsOfAModelAreRecorded", "[cpu]") {
  Recording recording;
  const std::vector<gdn::AnyProblem> problems = {gdn::DecodeProblem{}, gdn::PrefillProblem{}};
  CHECK(is_not_cached(gdn::compile(recording.context(), problems)));
  REQUIRE(recording.lines().size() == 2);
  CHECK(recording.lines()[1].starts_with("{\"op\":\"gdn_prefill\","));
}

TEST_CASE("EveryFieldOfATextIsAskedFor", "[cpu]") {
  Recording recording;
  const Context context = recording.context();
  std::vector<KernelSource> sources(6, kScale);
  sources[1].options = {"-DX=1"};
  sources[2].options = {"-DX=1", "-DY=1"};
  sources[3].allow_spills = false;
  sources[4].includes = {recording.shop().path("inc")};
  sources[5].source += "// another\n";
  for (const KernelSource& source : sources) CHECK(is_not_cached(context.compile(source)));
  CHECK(recording.lines().size() == sources.size());
}

TEST_CASE("FoldersOfARecordAreAbsolute", "[cpu]") {
  Recording recording;
  KernelSource source = kScale;
  source.includes = {"some/inc", "/abs"};
  CHECK(is_not_cached(recording.context().compile(source)));
  source.includes[0] = std::filesystem::current_path() / "some/inc";
  CHECK(recording.lines() == std::vector<std::string>{"{\"source\":" + to_json(source) + "}"});
}

TEST_CASE("WhatCannotBeIsNotRecorded", "[cpu]") {
  Recording recording;
  const Context context = recording.context();
  KernelSource source = kScale;
  source.options = {"-include=x.h"};
  CHECK_FALSE(context.compile(source));
  source = kScale;
  source.name = "a b";
  CHECK_FALSE(context.compile(source));
  CHECK_FALSE(context.compile(gdn::DecodeProblem{.key_dim = 7}));
  CHECK_FALSE(context.compile(KernelSpec{.kernel = "nowhere", .canonical = "nowhere;"}));
  CHECK_FALSE(std::filesystem::exists(recording.file()));
  // A specification of the library's own is said to be missing.
  const KernelSpec ours = gdn::DecodeProblem{}.kernels("sm_90a", {}).value().front();
  CHECK(is_not_cached(context.compile(ours)));
  CHECK_FALSE(std::filesystem::exists(recording.file()));
  CHECK(recording.shop().log().has(
      "record: gdn_decode is left out: it is a kernel of the library, which records problems\n"));
  source = kScale;
  source.source += "// \xe9\n";
  CHECK(is_not_cached(context.compile(source)));
  CHECK_FALSE(std::filesystem::exists(recording.file()));
  CHECK(recording.shop().log().has("record: scale is left out: not all of it is UTF-8\n"));
}

TEST_CASE("ARecordThatCannotBeWrittenIsOneWarning", "[cpu]") {
  Recording recording;
  const std::string folder = recording.shop().path("none");
  Options options = recording.options();
  options.record = folder + "/kernels.json";
  std::string said;
  options.log = [&](LogLevel level, std::string_view text) {
    CHECK(level == LogLevel::kWarning);
    said.append(text).append("\n");
  };
  const Context context = context_of(options);
  CHECK(is_not_cached(context.compile(kScale)));
  CHECK(is_not_cached(context.compile(twice_spec())));
  CHECK(said == "record: cannot write " + folder +
                    "/kernels.json: No such file or directory; nothing more is recorded\n");
  CHECK_FALSE(std::filesystem::exists(folder));
  // Not through a link, nor to what is no file.
  std::filesystem::create_symlink(recording.file(), recording.shop().path("link"));
  for (const char* name : {"link", "templates"}) {
    said.clear();
    options.record = recording.shop().path(name);
    CHECK(is_not_cached(context_of(options).compile(kScale)));
    CHECK(said.starts_with("record: cannot write "));
  }
  CHECK_FALSE(std::filesystem::exists(recording.file()));
}

TEST_CASE("ALineThatWasCutIsEndedFirst", "[cpu]") {
  Recording recording;
  test::write_bytes(recording.file(), "{\"source\":{\"na");
  CHECK(is_not_cached(recording.context().compile(kScale)));
  CHECK(recording.lines() ==
        std::vector<std::string>{"{\"source\":{\"na", "{\"source\":" + to_json(kScale) + "}"});
}

TEST_CASE("ThreadsShareARecord", "[cpu]") {
  Recording recording;
  const Context context = recording.context();
  std::vector<std::thread> threads(4);
  for (std::thread& thread : threads) {
    thread = std::thread([&context] {
      for (int i = 0; i < 20; ++i) {
        KernelSource source = kScale;
        source.options = {"-DX=" + std::to_string(i)};
        (void)context.compile(source);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(recording.lines().size() == 20);
}

TEST_CASE("AForkedChildRecordsNothing", "[cpu]") {
  Recording recording;
  const Context context = recording.context();
  CHECK(test::wait_for(test::start_child([&] { return context.compile(kScale) ? 1 : 0; })) == 0);
  CHECK_FALSE(std::filesystem::exists(recording.file()));
}

}  // namespace
}  // namespace cubinery::recorder_test
