// Of all programs of tests but gpu_tests.
#include "tests/runner.h"

int main(int argc, char** argv) { return cubinery::test::run_tests(argc, argv); }
