// Every bad argument of gdn::Decode::launch is kInvalidArgument, and the message names it.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gdn/operators.h"
#include "tests/gpu/cases.h"

namespace cubinery::test {
namespace {

using gdn::DecodeArgs;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::StateLocation;

constexpr std::int64_t kBatch = 3;

struct BadCall {
  const char* what;
  const char* names;  // a word of the message
  std::function<void(DecodeArgs&)> spoil;
};

// Whether `word` stands in `text` by itself, as "q" does in "q has" but not in "q_heads".
bool has_word(std::string_view text, std::string_view word) {
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end])))
      return true;
  }
  return false;
}

void expect_refused(const DecodeProblem& problem, const CaseOptions& options,
                    const std::vector<BadCall>& calls) {
  const gdn::Decode decode = prepare(problem);
  const DecodeCase c(problem, kBatch, options);
  const DeviceStream stream = make_stream(gpu());
  REQUIRE(decode.launch(stream.get(), c.args()).ok());  // unspoilt, the call is good
  stream.synchronize().value();
  c.upload();
  const GdnMemory before = c.download();
  for (const BadCall& call : calls) {
    DecodeArgs args = c.args();
    call.spoil(args);
    const Status status = decode.launch(stream.get(), args);
    INFO(call.what << " -> " << to_string(status.code()) << ": " << status.message());
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(has_word(status.message(), call.names));
    CHECK(has_word(status.message(), "accepted"));
  }
  stream.synchronize().value();
  CHECK(first_difference(c.download(), before) == "");  // nothing was launched
}

void shift(Tensor& tensor, std::ptrdiff_t bytes) {
  tensor.data = static_cast<std::byte*>(tensor.data) + bytes;
}

Tensor& tensor_named(DecodeArgs& args, std::string_view name) {
  constexpr auto& kRows = gdn::kTensorRows<DecodeArgs>;
  return std::find_if(kRows.begin(), kRows.end(), [&](const auto& row) { return row.name == name; })
      ->in(args);
}

// The mistakes that can be made with any of q, k, v and o.
std::vector<BadCall> bad_rows(const char* name) {
  const auto spoil = [=](auto change) {
    return [=](DecodeArgs& args) { change(tensor_named(args, name)); };
  };
  return {
      {"null", name, spoil([](Tensor& t) { t.data = nullptr; })},
      {"another dtype", name, spoil([](Tensor& t) { t.dtype = DType::kF32; })},
      {"an integer dtype", name, spoil([](Tensor& t) { t.dtype = DType::kI32; })},
      {"rank 2", name, spoil([](Tensor& t) { t.rank = 2; })},
      {"rank 5", name, spoil([](Tensor& t) { t.rank = 5; })},
      {"two tokens", name, spoil([](Tensor& t) {
         t.rank = 4;
         t.shape = {t.shape[0], 2, t.shape[1], t.shape[2]};
         t.strides = {t.strides[0], t.strides[0], t.strides[1], 1};
       })},
      {"one head more", name, spoil([](Tensor& t) { ++t.shape[1]; })},
      {"a shorter row", name, spoil([](Tensor& t) { t.shape[2] -= 16; })},
      {"an innermost stride of 2", name, spoil([](Tensor& t) { t.strides[2] = 2; })},
      {"an address between elements", name, spoil([](Tensor& t) { shift(t, 1); })},
  };
}

void append(std::vector<BadCall>* calls, std::vector<BadCall> more) {
  for (BadCall& call : more) calls->push_back(std::move(call));
}

TEST_CASE("GdnDecodeErrors.RowsOfABatch", "[gpu]") {
  std::vector<BadCall> calls{
      {"no q", "q", [](DecodeArgs& a) { a.q = {}; }},
      {"no k", "k", [](DecodeArgs& a) { a.k = {}; }},
      {"no v", "v", [](DecodeArgs& a) { a.v = {}; }},
      {"no o", "o", [](DecodeArgs& a) { a.o = {}; }},
      {"k of another batch", "k", [](DecodeArgs& a) { --a.k.shape[0]; }},
      {"v of another batch", "v", [](DecodeArgs& a) { --a.v.shape[0]; }},
      {"o of another batch", "o", [](DecodeArgs& a) { --a.o.shape[0]; }},
      {"a negative batch", "q", [](DecodeArgs& a) { a.q.shape[0] = -1; }},
      {"a batch beyond any grid", "q", [](DecodeArgs& a) { a.q.shape[0] = std::int64_t{1} << 40; }},
      {"o onto itself", "o", [](DecodeArgs& a) { a.o.strides[0] = 0; }},
      {"scale not a number", "scale", [](DecodeArgs& a) { a.scale = NAN; }},
  };
  append(&calls, bad_rows("q"));
  append(&calls, bad_rows("k"));
  append(&calls, bad_rows("v"));
  append(&calls, bad_rows("o"));
  expect_refused(small_problem(), {.seed = seed()}, calls);
}

// [B, heads] and [heads] tensors.
std::vector<BadCall> bad_scalars(const char* name, DType other) {
  const auto spoil = [=](auto change) {
    return [=](DecodeArgs& args) { change(tensor_named(args, name)); };
  };
  return {
      {"missing", name, spoil([](Tensor& t) { t = {}; })},
      {"null", name, spoil([](Tensor& t) { t.data = nullptr; })},
      {"another dtype", name, spoil([other](Tensor& t) { t.dtype = other; })},
      {"rank 4", name, spoil([](Tensor& t) { t.rank = 4; })},
      {"another extent", name, spoil([](Tensor& t) { ++t.shape[0]; })},
      {"an address between elements", name, spoil([](Tensor& t) { shift(t, 1); })},
  };
}

TEST_CASE("GdnDecodeErrors.GatesAndBeta", "[gpu]") {
  DecodeProblem problem = small_problem();
  problem.inputs.gate_mode = GateMode::kComputed;
  std::vector<BadCall> calls{
      {"one head more", "g", [](DecodeArgs& a) { ++a.g.shape[1]; }},
      {"one head more", "beta", [](DecodeArgs& a) { ++a.beta.shape[1]; }},
  };
  append(&calls, bad_scalars("g", DType::kBF16));
  append(&calls, bad_scalars("beta", DType::kBF16));
  append(&calls, bad_scalars("A_log", DType::kBF16));
  append(&calls, bad_scalars("dt_bias", DType::kBF16));
  expect_refused(problem, {.seed = seed()}, calls);
}

TEST_CASE("GdnDecodeErrors.TensorsThatTheProblemDoesNotUse", "[gpu]") {
  const auto extra = [](const char* name) {
    return BadCall{"given though unused", name,
                   [name](DecodeArgs& a) { tensor_named(a, name) = a.o; }};
  };
  DecodeProblem problem = small_problem();
  problem.inputs.gate_mode = GateMode::kNone;
  problem.inputs.beta_mode = gdn::BetaMode::kOne;
  expect_refused(
      problem, {.seed = seed()},
      {extra("g"),
       extra("beta"),
       extra("A_log"),
       extra("dt_bias"),
       extra("state_indices"),
       extra("state_out_indices"),
       extra("z"),
       extra("norm_weight"),
       {"an epsilon without a norm", "norm_eps", [](DecodeArgs& a) { a.norm_eps = 1e-6f; }},
       {"padding without a pool", "pad_slot_id", [](DecodeArgs& a) { a.pad_slot_id = -1; }},
       {"a scratch slot without padding", "scratch_slot",
        [](DecodeArgs& a) { a.scratch_slot = 1; }}});
  problem.states.store = false;
  expect_refused(problem, {.seed = seed()}, {extra("state_out")});
}

TEST_CASE("GdnDecodeErrors.Norm", "[gpu]") {
  DecodeProblem problem = small_problem();
  problem.output_norm = gdn::OutputNorm::kGatedRms;
  std::vector<BadCall> calls = bad_rows("z");
  append(&calls, bad_scalars("norm_weight", DType::kBF16));
  calls.push_back({"no z", "z", [](DecodeArgs& a) { a.z = {}; }});
  calls.push_back({"z of another batch", "z", [](DecodeArgs& a) { --a.z.shape[0]; }});
  calls.push_back({"a negative norm_eps", "norm_eps", [](DecodeArgs& a) { a.norm_eps = -1.0f; }});
  expect_refused(problem, {.seed = seed()}, calls);
}

// The mistakes that can be made with state and state_out.
std::vector<BadCall> bad_states(const char* name) {
  const auto spoil = [=](auto change) {
    return [=](DecodeArgs& args) { change(tensor_named(args, name)); };
  };
  return {
      {"null", name, spoil([](Tensor& t) { t.data = nullptr; })},
      {"another dtype", name, spoil([](Tensor& t) { t.dtype = DType::kBF16; })},
      {"rank 3", name, spoil([](Tensor& t) { t.rank = 3; })},
      {"4-byte alignment", name, spoil([](Tensor& t) { shift(t, 4); })},
      {"one head less", name, spoil([](Tensor& t) { --t.shape[1]; })},
      {"the other layout", name, spoil([](Tensor& t) {
         std::swap(t.shape[2], t.shape[3]);
         t.strides[2] = t.shape[3];
       })},
      {"gaps between rows", name, spoil([](Tensor& t) { t.strides[2] += 4; })},
      {"gaps between columns", name, spoil([](Tensor& t) { t.strides[3] = 2; })},
      {"a head gap of 4 bytes", name, spoil([](Tensor& t) { t.strides[1] += 1; })},
      {"overlapping heads", name, spoil([](Tensor& t) { t.strides[1] -= 4; })},
      {"a slot gap of 4 bytes", name, spoil([](Tensor& t) { t.strides[0] += 1; })},
      {"overlapping slots", name, spoil([](Tensor& t) { t.strides[0] = 0; })},
  };
}

TEST_CASE("GdnDecodeErrors.States", "[gpu]") {
  DecodeProblem problem = small_problem();
  problem.key_dim = 32;  // not square
  std::vector<BadCall> calls = bad_states("state");
  calls.push_back({"no state", "state", [](DecodeArgs& a) { a.state = {}; }});
  calls.push_back({"a state of another batch", "state", [](DecodeArgs& a) { ++a.state.shape[0]; }});
  expect_refused(problem, {.seed = seed()}, calls);
  CaseOptions separate{.seed = seed(), .separate_out = true};
  calls = bad_states("state_out");
  calls.push_back({"of another batch", "state_out", [](DecodeArgs& a) { ++a.state_out.shape[0]; }});
  expect_refused(problem, separate, calls);
  problem.states.location = StateLocation::kPool;
  expect_refused(problem, {.seed = seed()}, bad_states("state"));
}

TEST_CASE("GdnDecodeErrors.Indices", "[gpu]") {
  DecodeProblem problem = small_problem();
  problem.states.location = StateLocation::kPool;
  std::vector<BadCall> calls = bad_scalars("state_indices", DType::kI64);
  std::vector<BadCall> more = bad_scalars("state_out_indices", DType::kI64);
  more.erase(more.begin());  // these may be missing
  append(&calls, more);
  calls.push_back({"a float dtype", "state_indices",
                   [](DecodeArgs& a) { a.state_indices.dtype = DType::kF32; }});
  expect_refused(problem, {.seed = seed(), .write_indices = true}, calls);
}

TEST_CASE("GdnDecodeErrors.ScratchSlot", "[gpu]") {
  DecodeProblem problem = small_problem();
  problem.states.location = StateLocation::kPool;
  expect_refused(problem, {.seed = seed(), .padding = {.slot_id = -1, .scratch = 0}},
                 {{"a negative slot", "scratch_slot", [](DecodeArgs& a) { a.scratch_slot = -1; }},
                  {"a slot behind the pool", "scratch_slot",
                   [](DecodeArgs& a) { a.scratch_slot = a.state.shape[0]; }}});
}

TEST_CASE("GdnDecodeErrors.AnEmptyBatchIsNone", "[gpu]") {
  const gdn::Decode decode = prepare(small_problem());
  const DecodeCase c(small_problem(), 0, {.seed = seed()});
  CHECK(decode.launch(nullptr, c.args()).ok());
}

}  // namespace
}  // namespace cubinery::test
