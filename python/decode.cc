#include "operator.h"

namespace cubinery_python {
namespace {

using cubinery::capi::decode_tensors;
using cubinery::capi::shared_tensors;

class Decode final
    : public HandleOperator<CubineryDecode, cubinery_decode_create, cubinery_decode_destroy> {
 public:
  using HandleOperator::HandleOperator;

  // stream, shared_tensors()..., decode_tensors()..., scratch_slot, scale, enable_pdl, norm_eps
  PyObject* launch(PyObject* const* given, Py_ssize_t count) const override {
    CubineryDecodeArgs args = CUBINERY_DECODE_ARGS_INIT;
    const auto shared = shared_tensors(args);
    const auto own = decode_tensors(args);
    static_assert(shared.size() + own.size() < ArrayViews::kCapacity);
    if (!right_count(count, 1 + shared.size() + own.size() + 4)) return nullptr;
    ArrayViews views(device());
    float scale = 0, norm_eps = 0;
    // Without q there is x, behind z and norm_weight.
    PyObject* const x = given[1 + shared.size() + 2];
    const bool is_convolved = given[1] == Py_None && x != Py_None;
    if (!views.choose_stream(given[0], is_convolved ? "x" : "q", is_convolved ? x : given[1])) {
      return nullptr;
    }
    ++given;
    if (!read_tensors(shared, given, &views)) return nullptr;
    if (!read_tensors(own, given, &views)) return nullptr;
    if (!read_numbers(given, &scale, &args)) return nullptr;
    if (!read_float("norm_eps", *given, &norm_eps, &args.norm_eps)) return nullptr;
    return done(
        without_gil([&] { return cubinery_decode_launch(handle(), views.stream(), &args); }));
  }

  PyObject* choice(PyObject* const* given, Py_ssize_t count) const override {
    return choice_of(cubinery_decode_choice, handle(), {"batch"}, given, count);
  }
};

const OperatorClass kDecode("gdn_decode", Decode::create<Decode>);

}  // namespace
}  // namespace cubinery_python
