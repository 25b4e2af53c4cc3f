#include "operator.h"

namespace cubinery_python {
namespace {

using cubinery::capi::shared_tensors;
using cubinery::capi::verify_tensors;

class Verify final
    : public HandleOperator<CubineryVerify, cubinery_verify_create, cubinery_verify_destroy> {
 public:
  using HandleOperator::HandleOperator;

  // stream, shared_tensors()..., verify_tensors()..., scratch_slot, scale, enable_pdl
  PyObject* launch(PyObject* const* given, Py_ssize_t count) const override {
    CubineryVerifyArgs args = CUBINERY_VERIFY_ARGS_INIT;
    const auto shared = shared_tensors(args);
    const auto own = verify_tensors(args);
    static_assert(shared.size() + own.size() < ArrayViews::kCapacity);
    if (!right_count(count, 1 + shared.size() + own.size() + 3)) return nullptr;
    ArrayViews views(device());
    float scale = 0;
    if (!views.choose_stream(given[0], "q", given[1])) return nullptr;
    ++given;
    if (!read_tensors(shared, given, &views)) return nullptr;
    if (!read_tensors(own, given, &views)) return nullptr;
    if (!read_numbers(given, &scale, &args)) return nullptr;
    return done(
        without_gil([&] { return cubinery_verify_launch(handle(), views.stream(), &args); }));
  }

  PyObject* choice(PyObject* const* given, Py_ssize_t count) const override {
    return choice_of(cubinery_verify_choice, handle(), {"requests", "tokens"}, given, count);
  }
};

const OperatorClass kVerify("gdn_verify", Verify::create<Verify>);

}  // namespace
}  // namespace cubinery_python
