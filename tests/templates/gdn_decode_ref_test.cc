// The double-precision reference against another implementation's outputs (tests/golden).
#include "templates/gdn_decode/gdn_decode_ref.h"

#include <cmath>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace {

using cubinery::gdn::BetaMode;
using cubinery::gdn::DecodeRefHead;
using cubinery::gdn::GateMode;
using nlohmann::json;

// FLA ran in float32; the double reference reproduces it to this.
constexpr double kRelativeRms = 2e-6;

struct Array {
  std::vector<std::size_t> shape;
  std::vector<double> data;
};

Array array(const json& object, const char* name) {
  if (!object.contains(name) || object.at(name).is_null()) return {};
  return {object.at(name).at("shape").get<std::vector<std::size_t>>(),
          object.at(name).at("data").get<std::vector<double>>()};
}

double relative_rms(const std::vector<double>& actual, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

// One golden case, run through the reference token by token.
class GoldenCase {
 public:
  explicit GoldenCase(const json& text)
      : options_(text.at("options")),
        q_(array(text.at("inputs"), "q")),
        k_(array(text.at("inputs"), "k")),
        v_(array(text.at("inputs"), "v")),
        gate_(array(text.at("inputs"), computed_gate() ? "a" : "g")),
        beta_(array(text.at("inputs"), given_beta() ? "beta" : "beta_logit")),
        a_log_(array(text.at("inputs"), "A_log")),
        dt_bias_(array(text.at("inputs"), "dt_bias")),
        state_(array(text.at("inputs"), "initial_state")),
        key_heads_(k_.shape[2]),
        heads_(v_.shape[2]),
        key_dim_(k_.shape[3]),
        value_dim_(v_.shape[3]),
        o_(v_.data.size()) {
    if (state_.data.empty()) state_.data.resize(spans().size() * heads_ * key_dim_ * value_dim_);
  }

  void run() {
    const auto sequences = spans();
    for (std::size_t n = 0; n < sequences.size(); ++n) {
      for (std::size_t h = 0; h < heads_; ++h)
        run_head(n, h, sequences[n].first, sequences[n].second);
    }
  }

  const std::vector<double>& o() const { return o_; }
  const std::vector<double>& final_state() const { return state_.data; }

 private:
  bool computed_gate() const { return options_.at("gate") == "computed"; }
  bool given_beta() const { return options_.at("beta") == "given"; }

  // First and last token of each sequence, tokens counted through the batch.
  std::vector<std::pair<std::size_t, std::size_t>> spans() const {
    std::vector<std::pair<std::size_t, std::size_t>> result;
    const json& ends = options_.at("cu_seqlens");
    if (ends.is_null()) {
      const std::size_t length = k_.shape[1];
      for (std::size_t n = 0; n < k_.shape[0]; ++n)
        result.emplace_back(n * length, (n + 1) * length);
    } else {
      for (std::size_t n = 0; n + 1 < ends.size(); ++n) result.emplace_back(ends[n], ends[n + 1]);
    }
    return result;
  }

  void run_head(std::size_t n, std::size_t h, std::size_t first, std::size_t last) {
    const std::size_t matrix = key_dim_ * value_dim_;
    double* stored = state_.data.data() + (n * heads_ + h) * matrix;
    std::vector<double> state(matrix);  // [key_dim][value_dim]
    for (std::size_t i = 0; i < matrix; ++i) state[i] = stored[stored_index(i)];
    for (std::size_t t = first; t < last; ++t) {
      gdn_decode_ref(token(t, h), state.data(), o_.data() + (t * heads_ + h) * value_dim_);
    }
    for (std::size_t i = 0; i < matrix; ++i) stored[stored_index(i)] = state[i];
  }

  // Where element i of [key_dim][value_dim] lies in the case's layout.
  std::size_t stored_index(std::size_t i) const {
    if (options_.at("state_layout") == "kv") return i;
    return i % value_dim_ * key_dim_ + i / value_dim_;
  }

  DecodeRefHead<double> token(std::size_t t, std::size_t h) const {
    const std::size_t key_row = t * key_heads_ + h / (heads_ / key_heads_);
    DecodeRefHead<double> head{.key_dim = static_cast<int>(key_dim_),
                               .value_dim = static_cast<int>(value_dim_),
                               .gate_mode = computed_gate() ? GateMode::kComputed : GateMode::kLog,
                               .beta_mode = given_beta() ? BetaMode::kGiven
                                            : options_.at("beta") == "2*sigmoid"
                                                ? BetaMode::kDoubledLogit
                                                : BetaMode::kLogit,
                               .use_qk_l2norm = options_.at("use_qk_l2norm").get<bool>(),
                               .scale = options_.at("scale").get<double>(),
                               .q = row(q_, key_row, key_dim_),
                               .k = row(k_, key_row, key_dim_),
                               .v = row(v_, t * heads_ + h, value_dim_),
                               .gate = gate_.data[t * heads_ + h],
                               .beta = beta_.data[t * heads_ + h]};
    if (computed_gate()) {
      head.a_log = a_log_.data[h];
      head.dt_bias = dt_bias_.data[h];
    }
    return head;
  }

  static std::vector<double> row(const Array& array, std::size_t index, std::size_t size) {
    const auto begin = array.data.begin() + static_cast<std::ptrdiff_t>(index * size);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }

  json options_;
  Array q_, k_, v_, gate_, beta_, a_log_, dt_bias_, state_;
  std::size_t key_heads_, heads_, key_dim_, value_dim_;
  std::vector<double> o_;
};

TEST_CASE("GdnDecodeRef.ReproducesFlaGoldens", "[cpu]") {
  std::ifstream file(CUBINERY_TEST_DIR "/golden/gdn_fla_0.5.2_f32.json");
  REQUIRE(file.good());
  std::set<std::string> seen;
  const json goldens = json::parse(file);
  for (const json& text : goldens.at("cases")) {
    INFO("golden case " << text.at("name"));
    GoldenCase golden(text);
    golden.run();
    const Array o = array(text.at("outputs"), "o");
    const Array final_state = array(text.at("outputs"), "final_state");
    REQUIRE(golden.o().size() == o.data.size());
    REQUIRE(golden.final_state().size() == final_state.data.size());
    CHECK(relative_rms(golden.o(), o.data) <= kRelativeRms);
    CHECK(relative_rms(golden.final_state(), final_state.data) <= kRelativeRms);
    seen.insert(text.at("name").get<std::string>());
  }
  CHECK(seen == std::set<std::string>{"plain", "l2norm", "initial_state", "gva_ratio_3",
                                      "computed_gate", "doubled_beta", "state_v_first", "varlen",
                                      "strong_decay", "no_decay", "scale_one_unnormalised",
                                      "batch"});
}

// A state that is zero and a key of unit length: what one step does can be read off the formulas.
TEST_CASE("GdnDecodeRef.OneStepByHand", "[cpu]") {
  const DecodeRefHead<double> head{.key_dim = 2,
                                   .value_dim = 1,
                                   .gate_mode = GateMode::kAlpha,
                                   .beta_mode = BetaMode::kGiven,
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

}  // namespace
