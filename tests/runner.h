// Catch2's runner, which takes longer to compile than any test: once, for all programs of tests.
#pragma once

namespace cubinery::test {

// As the command line says; returns the program's exit status.
int run_tests(int argc, char** argv);

}  // namespace cubinery::test
