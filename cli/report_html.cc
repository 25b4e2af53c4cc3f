#include "cli/report_html.h"

namespace cubinery {

std::string report_html(const TuningReport& report) {
  constexpr std::string_view kMark = "@REPORT@";
  const std::string_view page = report_page();
  const std::size_t at = page.find(kMark);
  std::string html(page.substr(0, at));
  // Inside a script element "<" may end it or begin a comment; in JSON it stands in strings only.
  for (const char c : report_json(report)) {
    if (c == '<') {
      html += "\\u003c";
    } else {
      html += c;
    }
  }
  html += page.substr(at + kMark.size());
  return html;
}

}  // namespace cubinery
