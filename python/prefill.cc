#include "operator.h"

namespace cubinery_python {
namespace {

using cubinery::capi::prefill_tensors;
using cubinery::capi::shared_tensors;

class Prefill final
    : public HandleOperator<CubineryPrefill, cubinery_prefill_create, cubinery_prefill_destroy> {
 public:
  using HandleOperator::HandleOperator;

  // stream, workspace, shared_tensors()..., prefill_tensors()..., scratch_slot, scale,
  // enable_pdl, max_seqlen
  PyObject* launch(PyObject* const* given, Py_ssize_t count) const override {
    CubineryPrefillArgs args = CUBINERY_PREFILL_ARGS_INIT;
    const auto shared = shared_tensors(args);
    const auto own = prefill_tensors(args);
    static_assert(shared.size() + own.size() < ArrayViews::kCapacity);
    if (!right_count(count, 2 + shared.size() + own.size() + 4)) return nullptr;
    ArrayViews views(device());
    float scale = 0;
    void* workspace = nullptr;
    std::size_t bytes = 0;
    if (!views.choose_stream(given[0], "q", given[2])) return nullptr;
    if (!views.view_bytes("workspace", given[1], &workspace, &bytes)) return nullptr;
    given += 2;
    if (!read_tensors(shared, given, &views)) return nullptr;
    if (!read_tensors(own, given, &views)) return nullptr;
    if (!read_numbers(given, &scale, &args)) return nullptr;
    if (!read_integers(given, 1, {{"max_seqlen", &args.max_seqlen}})) return nullptr;
    return done(without_gil([&] {
      return cubinery_prefill_launch(handle(), views.stream(), &args, workspace, bytes);
    }));
  }

  PyObject* choice(PyObject* const* given, Py_ssize_t count) const override {
    return choice_of(cubinery_prefill_choice, handle(), {"tokens", "sequences", "max_seqlen"},
                     given, count);
  }

  // tokens, sequences
  PyObject* workspace_bytes(PyObject* const* given, Py_ssize_t count) const override {
    std::int64_t tokens = 0, sequences = 0;
    if (!read_integers(given, count, {{"tokens", &tokens}, {"sequences", &sequences}})) {
      return nullptr;
    }
    std::size_t bytes = 0;
    const int code = cubinery_prefill_workspace_bytes(handle(), tokens, sequences, &bytes);
    return code == CUBINERY_OK ? PyLong_FromSize_t(bytes) : raise(code);
  }
};

const OperatorClass kPrefill("gdn_prefill", Prefill::create<Prefill>);

}  // namespace
}  // namespace cubinery_python
