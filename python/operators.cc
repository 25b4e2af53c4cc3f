// The operators: the C API's functions of each, and what an operator has besides.
#include <deque>
#include <vector>

#include "operator.h"

namespace cubinery_python {
namespace {

#define CUBINERY_PYTHON_OPERATOR(Name, name, ...)               \
  struct Name##OfC {                                            \
    using Args = gdn::Name##Args;                               \
    using CArgs = Cubinery##Name##Args;                         \
    using Handle = Cubinery##Name;                              \
    static constexpr auto kCreate = cubinery_##name##_create;   \
    static constexpr auto kDestroy = cubinery_##name##_destroy; \
    static constexpr auto kLaunch = cubinery_##name##_launch;   \
    static constexpr auto kChoice = cubinery_##name##_choice;   \
  };
CUBINERY_OPERATORS(CUBINERY_PYTHON_OPERATOR)

class Prefill final : public TableOperator<PrefillOfC> {
 public:
  using TableOperator::TableOperator;

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

class Commit final : public TableOperator<CommitOfC> {
 public:
  using TableOperator::TableOperator;

  // The tensors of each layer
  PyObject* table(PyObject* const* given, Py_ssize_t count) const override {
    constexpr std::size_t kEach = gdn::kTensorRows<gdn::CommitLayer>.size();
    std::vector<CubineryCommitLayer> layers(static_cast<std::size_t>(count) / kEach);
    if (!right_count(count, layers.size() * kEach)) return nullptr;
    std::deque<ArrayViews> views;
    return or_sleep([&]() -> PyObject* {
      for (CubineryCommitLayer& layer : layers) {
        const auto tensors = gdn::tensors_in<gdn::CommitLayer>(layer);
        if (!read_tensors<gdn::CommitLayer>(tensors, given, &views.emplace_back(device()))) {
          return nullptr;
        }
        given += kEach;
      }
      return table_of(&layers);
    });
  }

 private:
  PyObject* table_of(std::vector<CubineryCommitLayer>* layers) const {
    // One more than none: the data of an empty vector may be NULL.
    std::vector<std::int64_t> words(layers->size() * CUBINERY_COMMIT_LAYER_WORDS + 1);
    layers->push_back({});
    const auto layer_count = static_cast<std::int64_t>(layers->size()) - 1;
    if (const int code = without_gil([&] {
          return cubinery_commit_table(handle(), layers->data(), layer_count, words.data());
        })) {
      return raise(code);
    }
    words.pop_back();
    return list_of(words);
  }

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

// What is made of an operator: what the tables say, unless it has more.
template <class Of>
using ClassOf = std::conditional_t<
    std::is_same_v<Of, PrefillOfC>, Prefill,
    std::conditional_t<std::is_same_v<Of, CommitOfC>, Commit, TableOperator<Of>>>;

#define CUBINERY_PYTHON_CLASS(Name, ...)                                   \
  const OperatorClass k##Name(cubinery::Fields<gdn::Name##Problem>::kName, \
                              ClassOf<Name##OfC>::create<ClassOf<Name##OfC>>);
CUBINERY_OPERATORS(CUBINERY_PYTHON_CLASS)

}  // namespace
}  // namespace cubinery_python
