// The inputs that fuzzing starts from, those that once went wrong among them, without a fuzzer.
#include <filesystem>
#include <string>

#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/fuzz/target.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

TEST_CASE("Fuzz.EveryKeptInputEndsWell", "[cpu]") {
  REQUIRE_FALSE(fuzz::targets().empty());
  for (const auto& [name, run] : fuzz::targets()) {
    int count = 0;
    for (const auto& file : fs::directory_iterator(CUBINERY_TEST_DIR "/fuzz/corpus/" + name)) {
      INFO(file.path());
      run(test::read_bytes(file.path()));
      ++count;
    }
    INFO(name);
    CHECK(count > 0);
    run("");
  }
}

}  // namespace
}  // namespace cubinery
