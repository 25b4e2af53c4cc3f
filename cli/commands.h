// The subcommands.  Each adds itself to `app`, and leaves in *exit_code what it returned when the
// parse of the command line ran it.
#pragma once

#include <CLI/CLI.hpp>

namespace cubinery {

void add_prewarm(CLI::App& app, int* exit_code);
void add_tune(CLI::App& app, int* exit_code);
void add_merge(CLI::App& app, int* exit_code);
void add_report(CLI::App& app, int* exit_code);
void add_cache(CLI::App& app, int* exit_code);
void add_explain(CLI::App& app, int* exit_code);
void add_doctor(CLI::App& app, int* exit_code);
void add_problems(CLI::App& app, int* exit_code);
void add_operators(CLI::App& app, int* exit_code);
void add_new_kernel(CLI::App& app, int* exit_code);
void add_result_kernels(CLI::App& app, int* exit_code);
void add_completion(CLI::App& app, int* exit_code);

}  // namespace cubinery
