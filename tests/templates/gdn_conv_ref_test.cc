// The reference of the convolution by hand.
#include "templates/gdn_conv/gdn_conv_ref.h"

#include <cmath>
#include <vector>

#include "tests/catch.h"

namespace cubinery::gdn {
namespace {

using Values = std::vector<double>;

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST_CASE("GdnConvRef.SumsByHand", "[cpu]") {
  const ConvRefChannel<double> channel{.taps = {1, 10, 100, 1000},
                                       .bias = 0.5,
                                       .activation = Activation::kNone,
                                       .before = {7, 8, 9}};
  // The newest input has the last tap.
  CHECK(conv_ref(channel, {1, 2, 3, 4, 5}) == Values{7 + 80 + 900 + 1000.5,  //
                                                     8 + 90 + 100 + 2000.5,  //
                                                     9 + 10 + 200 + 3000.5,  //
                                                     1 + 20 + 300 + 4000.5,  //
                                                     2 + 30 + 400 + 5000.5});
  CHECK(conv_ref(channel, {}).empty());
}

TEST_CASE("GdnConvRef.TwoTaps", "[cpu]") {
  const ConvRefChannel<double> channel{
      .taps = {-1, 2}, .activation = Activation::kNone, .before = {3}};
  CHECK(conv_ref(channel, {5, 7}) == Values{-3 + 10, -5 + 14});
}

// A sequence is the same in one piece and in two, the second with the last inputs of the first.
TEST_CASE("GdnConvRef.GoesOnFromTheLastInputs", "[cpu]") {
  ConvRefChannel<double> channel{.taps = {0.5, -1, 2}, .bias = 1, .before = {0, 0}};
  const Values whole = conv_ref(channel, {1, 2, 3, 4});
  Values pieces = conv_ref(channel, {1, 2, 3});
  channel.before = {2, 3};
  pieces.push_back(conv_ref(channel, {4}).front());
  CHECK(pieces == whole);
}

TEST_CASE("GdnConvRef.SiluOfTheSums", "[cpu]") {
  const ConvRefChannel<double> channel{.taps = {0, 1}, .before = {0}};
  const Values y = conv_ref(channel, {0, 1, -2, 800, -800});
  REQUIRE(y.size() == 5);
  CHECK(y[0] == 0);
  CHECK(std::abs(y[1] - 0.7310585786300049) < 1e-15);
  CHECK(std::abs(y[2] - -0.2384058440442351) < 1e-15);
  CHECK((y[3] == 800 && y[4] == 0));
  const ConvRefChannel<double> biased{.taps = {2, 1}, .bias = -1, .before = {3}};
  CHECK(conv_ref(biased, {0.5}).front() == silu(5.5));
}

TEST_CASE("GdnConvRef.NormOfAHead", "[cpu]") {
  Values head = {3, -4};
  conv_norm_ref(&head);
  const double norm = std::sqrt(25 + 1e-6);
  CHECK((head[0] == 3 / norm && head[1] == -4 / norm));
  head = {0, 0, 0};
  conv_norm_ref(&head);
  CHECK(head == Values{0, 0, 0});
  head = {1e-3};  // as large as the term that keeps zeros from dividing by zero
  conv_norm_ref(&head);
  CHECK(std::abs(head[0] - std::sqrt(0.5)) < 1e-12);
}

// -exp(A_log) softplus(a + dt_bias), or lower_bound sigmoid(exp(A_log) (a + dt_bias)).
TEST_CASE("GdnConvRef.DecaysByHand", "[cpu]") {
  DecodeRefHead<double> head{.inputs = {.decay = Decay::kChannel, .gate_mode = GateMode::kComputed},
                             .gate = {0, 30, -40},
                             .a_log = std::log(2),
                             .dt_bias = {0, -5, -3},
                             .lower_bound = -4};
  const auto near = [](double value) { return Approx(value).epsilon(1e-14); };
  CHECK(conv_log_decay_ref(head, 0) == near(-2 * std::log(2)));
  CHECK(conv_log_decay_ref(head, 1) == near(-2 * 25));
  CHECK(conv_log_decay_ref(head, 2) == near(-2 * std::exp(-43)));
  head.inputs.gate_mode = GateMode::kLowerBound;
  CHECK(conv_log_decay_ref(head, 0) == -2);
  CHECK(conv_log_decay_ref(head, 1) == near(-4 / (1 + std::exp(-50))));
  CHECK(conv_log_decay_ref(head, 2) == near(-4 * std::exp(-86)));
}

// Of channels none is less than -128; that of a head may be.
TEST_CASE("GdnConvRef.DecaysOfChannelsEndWhereTheyAreZero", "[cpu]") {
  DecodeRefHead<double> head{.inputs = {.decay = Decay::kChannel, .gate_mode = GateMode::kComputed},
                             .gate = {127, 129, 1e30},
                             .dt_bias = {0, 0, 0}};
  CHECK(conv_log_decay_ref(head, 0) == -127);
  CHECK(conv_log_decay_ref(head, 1) == -128);
  CHECK(conv_log_decay_ref(head, 2) == -128);
  CHECK(std::exp(static_cast<float>(conv_log_decay_ref(head, 1))) == 0);
  head.inputs.decay = Decay::kHead;
  CHECK(conv_log_decay_ref(head, 1) == -129);
}

TEST_CASE("GdnConvRef.SinglePrecisionRoundsEachStep", "[cpu]") {
  const ConvRefChannel<float> channel{
      .taps = {1, 1}, .activation = Activation::kNone, .before = {1}};
  CHECK(conv_ref(channel, {0x1p-25f}).front() == 1.0f);
}

}  // namespace
}  // namespace cubinery::gdn
