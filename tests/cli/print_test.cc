#include "cli/print.h"

#include "cli/progress.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

TEST_CASE("a table is as wide as its cells, numbers to the right", "[cpu]") {
  Table table({"name", "count", "size"});
  table.add({"gdn_decode", "3", "1.5 KiB"});
  table.add({"x", "12", "-"});
  CHECK(table.text() ==
        "name        count     size\n"
        "gdn_decode      3  1.5 KiB\n"
        "x              12        -\n");
  CHECK(Table({"a", "b"}).text() == "a  b\n");
  Table signs({"gain"});
  signs.add({"-0.5"});
  signs.add({"12.5"});
  CHECK(signs.text() == "gain\n-0.5\n12.5\n");
  Table words({"text"});
  words.add({"-o"});
  words.add({"12345"});
  CHECK(words.text() == "text\n-o\n12345\n");
}

TEST_CASE("sizes are binary multiples", "[cpu]") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(std::uint64_t{1} << 30) == "1.0 GiB");
  CHECK(bytes_text(UINT64_MAX) == "16777216.0 TiB");
}

TEST_CASE("ages are rounded down", "[cpu]") {
  CHECK(age_text(100, 90) == "just now");  // a clock that was set back
  CHECK(age_text(0, 59) == "just now");
  CHECK(age_text(0, 3599) == "59 min ago");
  CHECK(age_text(0, 47 * 3600) == "47 h ago");
  CHECK(age_text(0, 49 * 3600) == "2 days ago");
}

TEST_CASE("text is indented line by line", "[cpu]") {
  CHECK(indented("a\nb", "  ") == "  a\n  b\n");
  CHECK(indented("a\n\n", "  ") == "  a\n  \n");
  CHECK(indented("", "  ").empty());
  CHECK(join({"a", "b"}) == "a, b");
  CHECK(join({}).empty());
}

TEST_CASE("a progress bar fills from left to right", "[cpu]") {
  CHECK(progress_bar(0, 4, 8) == "[........]");
  CHECK(progress_bar(1, 4, 8) == "[##......]");
  CHECK(progress_bar(4, 4, 8) == "[########]");
  CHECK(progress_bar(0, 0, 8) == "[########]");
}

TEST_CASE("progress without a terminal is one line per item", "[cpu]") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    Progress progress(file, /*is_terminal=*/false, 2);
    progress.done("first");
    progress.done("second");
  }
  std::rewind(file);
  std::string text(100, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  CHECK(text == "[1/2] first\n[2/2] second\n");
}

}  // namespace
}  // namespace cubinery
