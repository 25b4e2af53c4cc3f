// Problems that were asked for and cannot be had: each is named, with its cause, and the command's
// exit code says that there are some.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/model_config.h"
#include "cubinery/status.h"

namespace cubinery {

class LeftOuts {
 public:
  // For the architecture, or for all of them.
  void add(const Request& request, const Status& why, std::string_view arch = {});
  // Of a form that others stand in for, together: nothing is missing.
  void add_replaced(const Request& request, const Status& why, std::string_view arch);
  // Of a file that lists problems: nobody knows which was there.
  void add_line(std::size_t number, std::string_view file, std::string_view why);

  bool empty() const { return all_.empty(); }
  // To stderr, a line for each form and cause: "left out: conv of config.json, tp 1: ...".
  void print() const;
  nlohmann::ordered_json json() const;
  // `code`, or kExitLeftOut in the place of kExitOk where something is missing.
  int exit_code(int code) const;

 private:
  struct One {
    std::string what;  // a form, an operator, or "line 7"
    std::string origin;
    std::string arch;
    std::string why;
    std::string instead;
  };
  void add(const Request& request, const Status& why, std::string_view arch,
           std::string_view instead);

  std::vector<One> all_;
};

}  // namespace cubinery
