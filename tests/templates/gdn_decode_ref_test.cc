// The double-precision reference of decode against another implementation's outputs and by hand.
#include "templates/gdn_decode/gdn_decode_ref.h"

#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"
#include "tests/catch.h"
#include "tests/golden.h"

namespace {

using cubinery::gdn::BetaMode;
using cubinery::gdn::DecodeRefHead;
using cubinery::gdn::GateMode;
using cubinery::gdn::PrefillRefHead;

TEST_CASE("GdnDecodeRef.ReproducesFlaGoldens", "[cpu]") {
  cubinery::test::check_goldens([](const PrefillRefHead<double>& head, double* state, double* o) {
    DecodeRefHead<double> token;
    for (int t = 0; t < head.tokens(); ++t) {
      set_token_ref(head, t, &token);
      gdn_decode_ref(token, state, o + t * head.value_dim);
    }
  });
}

// A state that is zero and a key of unit length: what one step does can be read off the formulas.
TEST_CASE("GdnDecodeRef.OneStepByHand", "[cpu]") {
  const DecodeRefHead<double> head{.key_dim = 2,
                                   .value_dim = 1,
                                   .inputs = {.gate_mode = GateMode::kAlpha},
                                   .scale = 2,
                                   .q = {3, 5},
                                   .k = {0, 1},
                                   .v = {10},
                                   .gate = 0.5,
                                   .beta = 0.25};
  double state[2] = {8, 4};  // decays to 4, 2; recalls 2; u = 0.25 * (10 - 2) = 2
  double o = -1;
  gdn_decode_ref(head, state, &o);
  CHECK(state[0] == 4);
  CHECK(state[1] == 4);
  CHECK(o == 2 * (3 * 4 + 5 * 4));
}

// silu(0) = 0, and silu of a large number the number itself.
TEST_CASE("GdnDecodeRef.AGatedNormByHand", "[cpu]") {
  double o[4] = {3, -1, 1, -1};  // mean of the squares: 3
  cubinery::gdn::gated_rms_ref<double>({2, 2, 5, 0}, {0, 100, 200, 1}, 1.0, o);
  CHECK(o[0] == 0);
  CHECK(o[1] == -100);
  CHECK(o[2] == 500);
  CHECK(o[3] == 0);
}

}  // namespace
