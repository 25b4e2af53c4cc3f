// benchmarks/results/<gpu>.json: the one record of what was measured.  Rows of the same identity
// are replaced, everything else in the file is kept.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace cubinery::bench {

class Results {
 public:
  // Reads `path` if it exists.  An empty path: rows are printed only.  Throws std::runtime_error
  // when the file is not such a record.
  Results(std::string path, std::string commit);

  // Members of the top level: "gpu", "sm_count", "driver", "nvrtc"; `name` of "ceilings".
  void set(const std::string& name, const nlohmann::ordered_json& value);
  void set_ceiling(const std::string& name, double value);

  // Adds the row identity + measured + commit + date, in place of the row whose members include all
  // of `identity`'s, prints it and saves the file: a run that is cut off keeps its rows.  A null in
  // `identity` is a member that the row has not.
  void put(const nlohmann::ordered_json& identity, const nlohmann::ordered_json& measured);

 private:
  // Writes the file whole: to a temporary file, then renamed.
  void save() const;

  std::string path_;
  std::string commit_;
  nlohmann::ordered_json root_;
};

// Four significant digits: more is noise.
double significant(double value);

}  // namespace cubinery::bench
