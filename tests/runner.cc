#include "tests/runner.h"

#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "tests/catch.h"

namespace cubinery::test {

int run_tests(int argc, char** argv) { return Catch::Session().run(argc, argv); }

}  // namespace cubinery::test
