// Reports as a page.
#pragma once

#include <string>
#include <string_view>

#include "tuner/report/report.h"

namespace cubinery {

// cli/page/report.html with its style, Chart.js and its scripts inside; @REPORT@ stands for the
// data.
std::string_view report_page();

// One file that needs nothing else: the page, with report_json() in it.
std::string report_html(const TuningReport& report);

}  // namespace cubinery
