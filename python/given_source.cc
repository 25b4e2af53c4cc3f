#include "given_source.h"

#include <cstdint>

namespace cubinery_python {
namespace {

// The texts of a list of bytes or str, as long as it lives.  False: an exception is set.
bool read_texts(PyObject* list, std::vector<const char*>* texts) {
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    PyObject* item = PyList_GetItem(list, i);
    const char* text =
        PyBytes_Check(item) != 0 ? PyBytes_AsString(item) : PyUnicode_AsUTF8AndSize(item, nullptr);
    if (text == nullptr) return false;
    texts->push_back(text);
  }
  return true;
}

}  // namespace

bool GivenSource::read(PyObject* arguments) {
  PyObject* includes = nullptr;
  PyObject* options = nullptr;
  int forbid_spills = 0;
  int share_headers = 0;
  if (!PyArg_ParseTuple(arguments, "OssO!O!psp", &handle_, &source_.source, &source_.name,
                        &PyList_Type, &includes, &PyList_Type, &options, &forbid_spills,
                        &source_.compiler, &share_headers)) {
    return false;
  }
  context_ = unwrap<Context>(handle_);
  if (context_ == nullptr || !read_texts(includes, &includes_)) return false;
  if (!read_texts(options, &options_)) return false;
  source_.includes = includes_.data();
  source_.include_count = includes_.size();
  source_.options = options_.data();
  source_.option_count = options_.size();
  source_.forbid_spills = static_cast<std::uint64_t>(forbid_spills);
  source_.share_headers = static_cast<std::uint64_t>(share_headers);
  return true;
}

}  // namespace cubinery_python
