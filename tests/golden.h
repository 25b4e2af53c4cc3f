// Another implementation's inputs and outputs: tests/golden/gdn_fla_0.5.2_f32.json and, with a
// decay for each channel, kda_fla_0.6.0_f64.json.
#pragma once

#include <cmath>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"
#include "tests/catch.h"

namespace cubinery::test {

// What double references reproduce the cases to, which were computed in float32, or in float64 and
// written with ten digits.
inline constexpr double kF32RelativeRms = 2e-6;
inline constexpr double kF64RelativeRms = 2e-9;

// One case, run through a reference head by head.
class GoldenCase {
 public:
  explicit GoldenCase(const nlohmann::json& text)
      : name(text.at("name")),
        expected_o(array(text.at("outputs"), "o").data),
        expected_state(array(text.at("outputs"), "final_state").data),
        options_(text.at("options")),
        q_(array(text.at("inputs"), "q")),
        k_(array(text.at("inputs"), "k")),
        v_(array(text.at("inputs"), "v")),
        gate_(array(text.at("inputs"), gate_mode() == gdn::GateMode::kLog ? "g" : "a")),
        beta_(array(text.at("inputs"), given_beta() ? "beta" : "beta_logit")),
        a_log_(array(text.at("inputs"), "A_log")),
        dt_bias_(array(text.at("inputs"), "dt_bias")),
        initial_state_(array(text.at("inputs"), "initial_state")),
        key_heads_(k_.shape[2]),
        heads_(v_.shape[2]),
        key_dim_(k_.shape[3]),
        value_dim_(v_.shape[3]) {}

  struct Outputs {
    std::vector<double> o, state;
  };

  // reference(head, state, o): as gdn::gdn_prefill_ref.
  template <class Reference>
  Outputs run(Reference reference) const {
    const auto sequences = spans();
    Outputs outputs{std::vector<double>(v_.data.size()), initial_state_.data};
    outputs.state.resize(sequences.size() * heads_ * key_dim_ * value_dim_);
    for (std::size_t n = 0; n < sequences.size(); ++n) {
      for (std::size_t h = 0; h < heads_; ++h) run_head(reference, n, h, sequences[n], &outputs);
    }
    return outputs;
  }

  const std::string name;
  const std::vector<double> expected_o, expected_state;

 private:
  struct Array {
    std::vector<std::size_t> shape;
    std::vector<double> data;
  };
  using Span = std::pair<std::size_t, std::size_t>;  // first token, and the one behind the last

  static Array array(const nlohmann::json& object, const char* name) {
    if (!object.contains(name) || object.at(name).is_null()) return {};
    return {object.at(name).at("shape").get<std::vector<std::size_t>>(),
            object.at(name).at("data").get<std::vector<double>>()};
  }

  gdn::GateMode gate_mode() const {
    const std::string& gate = options_.at("gate").get_ref<const std::string&>();
    if (gate == "log") return gdn::GateMode::kLog;
    return gate == "lower_bound" ? gdn::GateMode::kLowerBound : gdn::GateMode::kComputed;
  }
  // Numbers of a token and head.
  std::size_t gate_width() const { return gate_.shape.size() == 4 ? key_dim_ : 1; }
  bool given_beta() const { return options_.at("beta") == "given"; }

  // Of each sequence, tokens counted through the batch.
  std::vector<Span> spans() const {
    std::vector<Span> result;
    const nlohmann::json& ends = options_.at("cu_seqlens");
    if (ends.is_null()) {
      const std::size_t length = k_.shape[1];
      for (std::size_t n = 0; n < k_.shape[0]; ++n)
        result.emplace_back(n * length, (n + 1) * length);
    } else {
      for (std::size_t n = 0; n + 1 < ends.size(); ++n) result.emplace_back(ends[n], ends[n + 1]);
    }
    return result;
  }

  template <class Reference>
  void run_head(Reference reference, std::size_t n, std::size_t h, Span span,
                Outputs* outputs) const {
    const std::size_t matrix = key_dim_ * value_dim_;
    double* stored = outputs->state.data() + (n * heads_ + h) * matrix;
    std::vector<double> state(matrix);  // [key_dim][value_dim]
    std::vector<double> o((span.second - span.first) * value_dim_);
    for (std::size_t i = 0; i < matrix; ++i) state[i] = stored[stored_index(i)];
    reference(head(h, span), state.data(), o.data());
    for (std::size_t i = 0; i < matrix; ++i) stored[stored_index(i)] = state[i];
    for (std::size_t i = 0; i < o.size(); ++i) {
      const std::size_t row = (span.first + i / value_dim_) * heads_ + h;
      outputs->o[row * value_dim_ + i % value_dim_] = o[i];
    }
  }

  // Where element i of [key_dim][value_dim] lies in the case's layout.
  std::size_t stored_index(std::size_t i) const {
    if (options_.at("state_layout") == "kv") return i;
    return i % value_dim_ * key_dim_ + i / value_dim_;
  }

  gdn::PrefillRefHead<double> head(std::size_t h, Span span) const {
    gdn::PrefillRefHead<double> head{
        .key_dim = static_cast<int>(key_dim_),
        .value_dim = static_cast<int>(value_dim_),
        .inputs = {.decay = gate_width() == 1 ? gdn::Decay::kHead : gdn::Decay::kChannel,
                   .gate_mode = gate_mode(),
                   .beta_mode = given_beta()                         ? gdn::BetaMode::kGiven
                                : options_.at("beta") == "2*sigmoid" ? gdn::BetaMode::kDoubledLogit
                                                                     : gdn::BetaMode::kLogit,
                   .use_qk_l2norm = options_.at("use_qk_l2norm").get<bool>()},
        .scale = options_.at("scale").get<double>()};
    for (std::size_t t = span.first; t < span.second; ++t) {
      const std::size_t key_row = t * key_heads_ + h / (heads_ / key_heads_);
      append_row(q_, key_row, key_dim_, &head.q);
      append_row(k_, key_row, key_dim_, &head.k);
      append_row(v_, t * heads_ + h, value_dim_, &head.v);
      append_row(gate_, t * heads_ + h, gate_width(), &head.gate);
      append_row(beta_, t * heads_ + h, 1, &head.beta);
    }
    if (!a_log_.data.empty()) head.a_log = a_log_.data[h];
    head.dt_bias.assign(gate_width(), 0);
    if (!dt_bias_.data.empty()) {
      head.dt_bias.clear();
      append_row(dt_bias_, h, gate_width(), &head.dt_bias);
    }
    if (gate_mode() == gdn::GateMode::kLowerBound) head.lower_bound = options_.at("lower_bound");
    return head;
  }

  static void append_row(const Array& array, std::size_t index, std::size_t size,
                         std::vector<double>* rows) {
    const auto begin = array.data.begin() + static_cast<std::ptrdiff_t>(index * size);
    rows->insert(rows->end(), begin, begin + static_cast<std::ptrdiff_t>(size));
  }

  nlohmann::json options_;
  Array q_, k_, v_, gate_, beta_, a_log_, dt_bias_, initial_state_;
  std::size_t key_heads_, heads_, key_dim_, value_dim_;
};

inline double relative_rms(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

// Checks a double-precision reference, called as in GoldenCase::run, against every case of a file.
template <class Reference>
void check_goldens(const std::string& file_name, double tolerance,
                   const std::set<std::string>& names, Reference reference) {
  std::ifstream file(CUBINERY_TEST_DIR "/golden/" + file_name);
  REQUIRE(file.good());
  std::set<std::string> seen;
  const nlohmann::json goldens = nlohmann::json::parse(file);
  for (const nlohmann::json& text : goldens.at("cases")) {
    const GoldenCase golden(text);
    INFO("golden case " << golden.name);
    const GoldenCase::Outputs outputs = golden.run(reference);
    CHECK(relative_rms(outputs.o, golden.expected_o) <= tolerance);
    CHECK(relative_rms(outputs.state, golden.expected_state) <= tolerance);
    seen.insert(golden.name);
  }
  CHECK(seen == names);
}

// One decay for a head.
template <class Reference>
void check_gdn_goldens(Reference reference) {
  check_goldens(
      "gdn_fla_0.5.2_f32.json", kF32RelativeRms,
      {"plain", "l2norm", "initial_state", "gva_ratio_3", "computed_gate", "doubled_beta",
       "state_v_first", "varlen", "strong_decay", "no_decay", "scale_one_unnormalised", "batch"},
      reference);
}

// One for each of its channels.
template <class Reference>
void check_kda_goldens(Reference reference) {
  check_goldens(
      "kda_fla_0.6.0_f64.json", kF64RelativeRms,
      {"softplus", "softplus_large", "lower_bound_no_A", "lower_bound_minus_1_no_bias",
       "doubled_beta", "gva_ratio_3", "K_32_V_64", "K_64_V_16_state_vk", "varlen_log_no_state",
       "one_token_softplus", "mixed_decay", "carried_between_channels", "tiny_keys"},
      reference);
}

}  // namespace cubinery::test
