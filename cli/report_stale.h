// Which results of a report this library would not use.
#pragma once

#include "cubinery/options.h"
#include "tuner/report/report.h"

namespace cubinery {

// Sets ReportedSetting::stale where there is a result, by the templates that `options` finds and,
// if there is one, its NVRTC.  Settings whose templates are nowhere stay unknown.
void mark_stale(const Options& options, TuningReport* report);

}  // namespace cubinery
