#include "operator.h"

namespace cubinery_python {
namespace {

using cubinery::capi::shared_tensors;

class Decode final
    : public HandleOperator<CubineryDecode, cubinery_decode_create, cubinery_decode_destroy> {
 public:
  using HandleOperator::HandleOperator;

  // stream, shared_tensors()..., scratch_slot, scale, programmatic
  PyObject* launch(PyObject* const* given, Py_ssize_t count) const override {
    CubineryDecodeArgs args = CUBINERY_DECODE_ARGS_INIT;
    const auto tensors = shared_tensors(args);
    static_assert(tensors.size() < ArrayViews::kCapacity);
    if (!right_count(count, 1 + tensors.size() + 3)) return nullptr;
    ArrayViews views(device());
    float scale = 0;
    if (!views.choose_stream(given[0], given[1])) return nullptr;
    ++given;
    if (!read_tensors(tensors, given, &views)) return nullptr;
    if (!read_numbers(given, &scale, &args)) return nullptr;
    return done(
        without_gil([&] { return cubinery_decode_launch(handle(), views.stream(), &args); }));
  }

  // batch
  PyObject* choice(PyObject* const* given, Py_ssize_t count) const override {
    std::int64_t batch = 0;
    if (!read_integers(given, count, {{"batch", &batch}})) return nullptr;
    char* text = nullptr;
    const int code = cubinery_decode_choice(handle(), batch, &text);
    return take_text(code, text);
  }
};

const OperatorClass kDecode("gdn_decode", Decode::create<Decode>);

}  // namespace
}  // namespace cubinery_python
