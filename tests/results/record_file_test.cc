// Files of records: what is damaged, what crashes leave, what several processes do.
#include "results/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "cache/file_io.h"
#include "cache/file_lock.h"
#include "tests/cache/child.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/tuner/sample_records.h"

namespace cubinery {
namespace {

using test::sample_measurement;
using test::sample_result;
using test::sample_setting;
using test::TempDir;

std::vector<std::string> texts(const std::vector<DamagedLine>& damaged) {
  std::vector<std::string> all;
  for (const DamagedLine& line : damaged) all.push_back(line.text());
  return all;
}

TEST_CASE("PathsNameTheOperator", "[cpu]") {
  CHECK(measurements_path("/c/tuning", "gdn_decode") == "/c/tuning/gdn_decode.measurements.jsonl");
  CHECK(results_path("/c/tuning", "gdn_decode") == "/c/tuning/gdn_decode.results.jsonl");
}

TEST_CASE("AbsentFilesHaveNoRecords", "[cpu]") {
  const TempDir temp;
  const Result<Measurements> measurements = read_measurements(temp.path() + "/no/such");
  REQUIRE(measurements);
  CHECK(measurements->settings.empty());
  const Result<TuningResults> results = read_results(temp.path() + "/no");
  REQUIRE(results);
  CHECK(results->results.empty());
  CHECK(results->damaged.empty());
}

TEST_CASE("WhatWasAppendedIsRead", "[cpu]") {
  const TempDir temp;
  const std::string path = measurements_path(temp.path() + "/deep/tuning", "gdn_decode");
  REQUIRE(append_lines(path, to_line(sample_setting())).ok());
  REQUIRE(append_lines(path, to_line(sample_measurement(8, 4)) + to_line(sample_measurement(8, 2)))
              .ok());
  REQUIRE(append_lines(path, "").ok());
  const Result<Measurements> read = read_measurements(path);
  REQUIRE(read);
  CHECK(texts(read->damaged).empty());
  REQUIRE(read->settings.size() == 1);
  CHECK(to_line(read->settings.at(id_of(sample_setting()))) == to_line(sample_setting()));
  REQUIRE(read->measurements.size() == 2);
  CHECK(to_line(read->measurements[0]) == to_line(sample_measurement(8, 4)));
  CHECK(to_line(read->measurements[1]) == to_line(sample_measurement(8, 2)));
  struct ::stat status {};
  REQUIRE(::stat((temp.path() + "/deep/tuning").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
}

TEST_CASE("LaterRecordsReplaceEarlierOnes", "[cpu]") {
  const Measurements measurements = parse_measurements(
      to_line(sample_setting()) + to_line(sample_measurement(8, 4, 2)) +
          to_line(sample_measurement(8, 2, 3)) + to_line(sample_measurement(8, 4, 1)),
      "m");
  REQUIRE(measurements.measurements.size() == 2);
  CHECK(measurements.measurements[0].ms.median == 1);
  CHECK(measurements.measurements[1].ms.median == 3);

  const TuningResults results = parse_results(
      to_line(sample_result(8, 2)) + to_line(sample_result(64, 3)) + to_line(sample_result(8, 1)),
      "r");
  REQUIRE(results.results.size() == 2);
  CHECK(results.results[0].ms.median == 1);
  CHECK(results.results[1].ms.median == 3);
}

TEST_CASE("DamagedLinesArePassedOverAndNamed", "[cpu]") {
  std::string cut = to_line(sample_measurement(8, 1));
  cut.resize(cut.size() / 2);
  const std::string text = to_line(sample_setting()) +           // 1
                           to_line(sample_measurement(64, 4)) +  // 2: of no setting
                           cut + "\n" +                          // 3
                           "{\"setting\":7,\"op\":\"k\"}\n" +    // 4
                           "{\"marvel\":1}\n" +                  // 5
                           to_line(sample_measurement(8, 2)) +   // 6
                           "\x01\xff garbage\n" +                // 7
                           to_line(sample_measurement(8, 4));    // 8
  const Measurements read = parse_measurements(text, "/t/k.measurements.jsonl");
  CHECK(read.settings.size() == 1);
  CHECK(read.measurements.size() == 2);
  CHECK(texts(read.damaged) ==
        std::vector<std::string>{
            "/t/k.measurements.jsonl:2: names a setting that the file does not have",
            "/t/k.measurements.jsonl:3: not JSON at column 288",
            "/t/k.measurements.jsonl:4: newer format 7, of which this version knows 1",
            "/t/k.measurements.jsonl:5: no record that this version knows",
            "/t/k.measurements.jsonl:7: no record that this version knows"});

  const TuningResults results =
      parse_results("{\"result\":1}\n" + to_line(sample_result()) + "?\n", "r");
  CHECK(results.results.size() == 1);
  CHECK(texts(results.damaged) ==
        std::vector<std::string>{"r:1: op is missing", "r:3: no record that this version knows"});
}

TEST_CASE("BlankLinesAndCarriageReturnsAreNoDamage", "[cpu]") {
  std::string text =
      "\n\r\n  \n" + to_line(sample_setting()) + "\n\n" + to_line(sample_measurement());
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2) text.insert(at, "\r");
  const Measurements read = parse_measurements(text, "m");
  CHECK(texts(read.damaged).empty());
  CHECK(read.settings.size() == 1);
  CHECK(read.measurements.size() == 1);
}

TEST_CASE("FilesMayBeJoinedInAnyOrder", "[cpu]") {
  const std::string text =
      to_line(sample_measurement()) + to_line(sample_result()) + to_line(sample_setting());
  const Measurements measurements = parse_measurements(text, "all");
  CHECK(texts(measurements.damaged).empty());
  CHECK(measurements.measurements.size() == 1);
  const TuningResults results = parse_results(text, "all");
  CHECK(texts(results.damaged).empty());
  CHECK(results.results.size() == 1);
}

TEST_CASE("ALastLineWithoutItsEndIsRead", "[cpu]") {
  std::string text = to_line(sample_result());
  text.pop_back();
  CHECK(parse_results(text, "r").results.size() == 1);
}

TEST_CASE("AppendingClosesACutLine", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.measurements.jsonl";
  const std::string line = to_line(sample_measurement());
  test::write_bytes(path, to_line(sample_setting()) + line.substr(0, 40));
  REQUIRE(append_lines(path, line).ok());
  CHECK(test::read_bytes(path) == to_line(sample_setting()) + line.substr(0, 40) + "\n" + line);
  const Result<Measurements> read = read_measurements(path);
  REQUIRE(read);
  CHECK(read->measurements.size() == 1);
  CHECK(texts(read->damaged) == std::vector<std::string>{path + ":2: not JSON at column 41"});
}

TEST_CASE("DirectoriesThatCannotBeMadeAreErrors", "[cpu]") {
  const TempDir temp;
  test::write_bytes(temp.path() + "/file", "");
  const Status status = append_lines(temp.path() + "/file/tuning/k.results.jsonl", "x\n");
  CHECK(status.code() == Code::kIo);
  CHECK(status.message() ==
        "cannot make the directory " + temp.path() + "/file/tuning: Not a directory");
}

TEST_CASE("FilesThatCannotBeWrittenAreErrors", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.results.jsonl";
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  const Status status = append_lines(path, "x\n");
  CHECK(status.code() == Code::kIo);
  CHECK(status.message() == "cannot open " + path + ": Is a directory");
  // A full disk.
  CHECK(append_lines("/dev/full", "x\n").code() == Code::kIo);
  const Result<TuningResults> read = read_results(path);
  REQUIRE_FALSE(read);
  CHECK(read.error().code() == Code::kIo);
  CHECK(read.error().message() == "cannot read " + path + ": it is not a regular file");
}

TEST_CASE("AppendingFollowsNoSymbolicLink", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.results.jsonl";
  test::write_bytes(temp.path() + "/target", "precious");
  REQUIRE(::symlink((temp.path() + "/target").c_str(), path.c_str()) == 0);
  const Status status = append_lines(path, "x\n");
  CHECK(status.code() == Code::kIo);
  CHECK(status.message() ==
        "cannot append to " + path + ": it is a symbolic link; accepted: a regular file");
  CHECK(test::read_bytes(temp.path() + "/target") == "precious");
}

TEST_CASE("FilesThatOthersCouldHaveWrittenAreNotUsed", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.results.jsonl";
  REQUIRE(append_lines(path, to_line(sample_result())).ok());
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  const std::string refusal = path +
                              " can be written by other users, who could run code as us through "
                              "it; chmod go-w, or set trust_shared_dirs (CUBINERY_TRUST=all)";
  CHECK(append_lines(path, "x\n").message() == refusal);
  CHECK(read_results(path, Trust{}).error().message() == refusal);
  CHECK(read_measurements(path, Trust{}).error().message() == refusal);
  CHECK(read_results(path)->results.size() == 1);
  CHECK(append_lines(path, to_line(sample_result(64, 3)), {.everybody = true}).ok());
  CHECK(read_results(path)->results.size() == 2);
}

// A child that has locked the file, and a child of its own that shares its descriptors: it ends
// with the parent's pipe.
pid_t start_holder(const std::string& path, const test::Pipe& ready) {
  return test::start_child([&] {
    const Descriptor file = open_file(path, O_RDWR);
    std::unique_ptr<HeldLock> held;
    if (try_lock_open(file.get(), &held)) return 1;
    test::start_child([&] { return ready.send() && ::sleep(60) == 0 ? 0 : 1; });
    for (;;) ::pause();
  });
}

TEST_CASE("ALockOfAFileDiesWithItsHolder", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.results.jsonl";
  REQUIRE(append_lines(path, to_line(sample_result())).ok());
  const test::Pipe ready;
  const pid_t holder = start_holder(path, ready);
  REQUIRE(ready.receive());
  const Descriptor file = open_file(path, O_RDWR);
  std::unique_ptr<HeldLock> held;
  CHECK(try_lock_open(file.get(), &held) == std::errc::operation_would_block);
  test::kill_child(holder);
  CHECK_FALSE(try_lock_open(file.get(), &held));
  // Threads of one process, too.
  std::unique_ptr<HeldLock> second;
  CHECK(try_lock_open(file.get(), &second) == std::errc::operation_would_block);
  held.reset();
  CHECK_FALSE(try_lock_open(file.get(), &second));
}

// A holder that was stopped: it took 'for ever'.
TEST_CASE("ALockThatStaysTakenLosesNothing", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.results.jsonl";
  REQUIRE(append_lines(path, to_line(sample_result())).ok());
  const test::Pipe ready;
  const pid_t holder = start_holder(path, ready);
  REQUIRE(ready.receive());
  CHECK(append_lines(path, to_line(sample_result(64, 3)), {}, std::chrono::milliseconds(1)).ok());
  test::kill_child(holder);
  const Result<TuningResults> read = read_results(path);
  REQUIRE(read);
  CHECK(read->results.size() == 2);
  CHECK(read->damaged.empty());
}

TEST_CASE("FilesLargerThanReasonAreErrors", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.results.jsonl";
  test::write_bytes(path, "");
  REQUIRE(::truncate(path.c_str(), off_t{1} << 30) == 0);  // sparse
  const Result<TuningResults> read = read_results(path);
  REQUIRE_FALSE(read);
  CHECK(read.error().message() == "cannot read " + path + ": it has more than 256 MiB");
}

TEST_CASE("OperatorsAreThoseWithFiles", "[cpu]") {
  const TempDir temp;
  for (const char* name :
       {"b.results.jsonl", "b.measurements.jsonl", "a_1.measurements.jsonl", "a-1.results.jsonl",
        ".results.jsonl", "c.jsonl", "d.results.jsonl.bak"}) {
    test::write_bytes(temp.path() + "/" + name, "");
  }
  const Result<std::vector<std::string>> names = tuned_operators(temp.path());
  REQUIRE(names);
  CHECK(*names == std::vector<std::string>{"a_1", "b"});
  const Result<std::vector<std::string>> none = tuned_operators(temp.path() + "/absent");
  REQUIRE(none);
  CHECK(none->empty());
}

TEST_CASE("ProcessesThatAppendAtOnceLoseNothing", "[cpu]") {
  const TempDir temp;
  const std::string path = temp.path() + "/k.measurements.jsonl";
  constexpr int kProcesses = 3;
  constexpr int kLines = 100;
  REQUIRE(append_lines(path, to_line(sample_setting())).ok());
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(test::start_child([&] {
      for (int i = 0; i < kLines; ++i) {
        const Measurement measurement = sample_measurement(8, 1 + process * kLines + i);
        if (!append_lines(path, to_line(measurement)).ok()) return 1;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) CHECK(test::wait_for(child) == 0);
  const Result<Measurements> read = read_measurements(path);
  REQUIRE(read);
  CHECK(texts(read->damaged).empty());
  CHECK(read->measurements.size() == kProcesses * kLines);
}

// Tells of each line that append_lines() has returned from.
int append_for_ever(const std::string& path, int first, int told) {
  for (int i = first;; ++i) {
    Measurement measurement = sample_measurement(8, i);
    measurement.reason.assign(3000, 'x');  // several pages at a time
    if (!append_lines(path, to_line(measurement) + to_line(measurement)).ok()) return 1;
    if (::write(told, &i, sizeof i) != sizeof i) return 1;
  }
}

TEST_CASE("KilledProcessesLoseNoFinishedMeasurement", "[cpu]") {
  constexpr int kKills = 100;
  constexpr int kLongestLifeUs = 8000;
  const TempDir temp;
  const std::string path = temp.path() + "/k.measurements.jsonl";
  REQUIRE(append_lines(path, to_line(sample_setting())).ok());
  std::mt19937 random(20261121);
  std::uniform_int_distribution<int> life(0, kLongestLifeUs);
  std::set<std::string> finished;
  for (int kill = 0; kill < kKills; ++kill) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    const pid_t child =
        test::start_child([&] { return append_for_ever(path, kill * 100000, pipe[1]); });
    REQUIRE(child > 0);
    ::close(pipe[1]);
    int i = 0;
    REQUIRE(::read(pipe[0], &i, sizeof i) == sizeof i);  // it is at work
    finished.insert(to_text(test::sample_configuration(i)));
    std::this_thread::sleep_for(std::chrono::microseconds(life(random)));
    test::kill_child(child);
    while (::read(pipe[0], &i, sizeof i) == sizeof i) {
      finished.insert(to_text(test::sample_configuration(i)));
    }
    ::close(pipe[0]);
    // What a death in the middle of a write leaves.
    if (kill % 10 == 0) {
      const std::string all = test::read_bytes(path);
      test::write_bytes(path, all + to_line(sample_measurement()).substr(0, 1 + kill));
    }
  }
  const Result<Measurements> read = read_measurements(path);
  REQUIRE(read);
  CHECK(read->damaged.size() >= kKills / 10);
  std::set<std::string> found;
  for (const Measurement& measurement : read->measurements) {
    found.insert(to_text(measurement.configuration));
  }
  for (const std::string& configuration : finished) {
    INFO(configuration);
    REQUIRE(found.contains(configuration));
  }
}

}  // namespace
}  // namespace cubinery
