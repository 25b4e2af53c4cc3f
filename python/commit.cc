#include <deque>
#include <vector>

#include "operator.h"

namespace cubinery_python {
namespace {

using cubinery::capi::commit_tensors;
using cubinery::capi::layer_tensors;

class Commit final
    : public HandleOperator<CubineryCommit, cubinery_commit_create, cubinery_commit_destroy> {
 public:
  using HandleOperator::HandleOperator;

  // stream, layer_tensors()..., commit_tensors()..., scratch_slot, enable_pdl
  PyObject* launch(PyObject* const* given, Py_ssize_t count) const override {
    CubineryCommitArgs args = CUBINERY_COMMIT_ARGS_INIT;
    const auto layer = layer_tensors(args.layer);
    const auto own = commit_tensors(args);
    static_assert(layer.size() + own.size() < ArrayViews::kCapacity);
    if (!right_count(count, 1 + layer.size() + own.size() + 2)) return nullptr;
    PyObject* const k = given[1];
    PyObject* const layers = given[1 + layer.size()];
    if (k == Py_None && layers == Py_None) {
      set_invalid_argument("k is None; accepted: an array, layers is None");
      return nullptr;
    }
    ArrayViews views(device());
    const bool of_layer = layers == Py_None;
    if (!views.choose_stream(given[0], of_layer ? "k" : "layers", of_layer ? k : layers)) {
      return nullptr;
    }
    ++given;
    if (!read_tensors(layer, given, &views)) return nullptr;
    if (!read_tensors(own, given, &views)) return nullptr;
    if (!read_integers(given, 1, {{"scratch_slot", &args.scratch_slot}})) return nullptr;
    args.enable_pdl = PyObject_IsTrue(given[1]);
    if (args.enable_pdl == -1) return nullptr;
    return done(
        without_gil([&] { return cubinery_commit_launch(handle(), views.stream(), &args); }));
  }

  PyObject* choice(PyObject* const* given, Py_ssize_t count) const override {
    return choice_of(cubinery_commit_choice, handle(), {"layers", "requests"}, given, count);
  }

  // layer_tensors()... of each layer
  PyObject* table(PyObject* const* given, Py_ssize_t count) const override {
    CubineryCommitLayer none = CUBINERY_COMMIT_LAYER_INIT;
    const auto each = static_cast<Py_ssize_t>(layer_tensors(none).size());
    std::vector<CubineryCommitLayer> layers(static_cast<std::size_t>(count / each), none);
    if (!right_count(count, layers.size() * static_cast<std::size_t>(each))) return nullptr;
    std::deque<ArrayViews> views;
    for (CubineryCommitLayer& layer : layers) {
      if (!read_tensors(layer_tensors(layer), given, &views.emplace_back(device()))) return nullptr;
    }
    // One more than none: the data of an empty vector may be NULL.
    std::vector<std::int64_t> words(layers.size() * CUBINERY_COMMIT_LAYER_WORDS + 1);
    layers.push_back(none);
    const auto layer_count = static_cast<std::int64_t>(layers.size()) - 1;
    if (const int code = without_gil([&] {
          return cubinery_commit_table(handle(), layers.data(), layer_count, words.data());
        })) {
      return raise(code);
    }
    words.pop_back();
    return list_of(words);
  }

 private:
  static PyObject* list_of(const std::vector<std::int64_t>& words) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(words.size()));
    if (list == nullptr) return nullptr;
    for (std::size_t i = 0; i < words.size(); ++i) {
      PyObject* word = PyLong_FromLongLong(words[i]);
      if (word == nullptr || PyList_SetItem(list, static_cast<Py_ssize_t>(i), word) != 0) {
        Py_DECREF(list);
        return nullptr;
      }
    }
    return list;
  }
};

const OperatorClass kCommit("gdn_commit", Commit::create<Commit>);

}  // namespace
}  // namespace cubinery_python
