// Errors are values: Status for calls that return nothing, Result<T> for calls that return a T.
//
// The library never throws, aborts or prints.  Result::value() is the single bridge to exceptions:
// it throws cubinery::Error where exceptions are enabled and aborts where they are not; examples
// use it, the library itself does not.
//
//   cubinery::Result<cubinery::Context> context = cubinery::Context::create(options);
//   if (!context) return report(context.error().message(), context.error().log());
#pragma once

#include <cassert>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#if defined(__cpp_exceptions)
#include <exception>
#endif

namespace cubinery {

// What the caller can do about an error.  Persistent: do not renumber, the C ABI returns these.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,  // fix the call: the message names the argument, its value, what is taken
  kInvalidKey = 2,       // fix the kernel key: the message names the rule of key.h that it breaks
  kCompileFailed = 3,    // fix the template: log() holds the compiler's text
  kNotCached = 4,        // an offline context has no entry for the kernel: fill the cache (prewarm)
  kUnsupported = 5,      // needs another GPU, driver or NVRTC: the message says which
  kDriver = 6,           // CUDA said no: the message holds its error name
  kIo = 7,  // a file could not be read or written (explicit cache and template calls only)
};

// The name of a code without the k, for example "InvalidArgument".
const char* to_string(Code code);

// The outcome of a call: OK, or a code with a message and, for compilers, a log.  Move-only, one
// pointer wide, null when OK.  A Status may be moved between threads but not shared while changed.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // Requires: code != Code::kOk.
  Status(Code code, std::string message, std::string log = {})
      : error_(std::make_unique<Details>(Details{code, std::move(message), std::move(log)})) {
    assert(code != Code::kOk);
  }

  bool ok() const { return error_ == nullptr; }
  Code code() const { return error_ ? error_->code : Code::kOk; }
  // Who, what, for which value.  Empty when OK.  Of a temporary: a copy.
  std::string_view message() const& { return error_ ? std::string_view(error_->message) : ""; }
  std::string message() && { return error_ ? error_->message : ""; }
  // The compiler's log.  Empty when there is none.
  std::string_view log() const& { return error_ ? std::string_view(error_->log) : ""; }
  std::string log() && { return error_ ? error_->log : ""; }

  // The same error again, for a second owner.
  Status clone() const { return error_ ? copy() : Status(); }

  // OK passes; an error throws Error (see above) or aborts.
  void value() const;

 private:
  struct Details {
    Code code;
    std::string message;
    std::string log;
  };
  Status copy() const;  // of an error

  std::unique_ptr<const Details> error_;
};

#if defined(__cpp_exceptions)
// What Result::value() throws.  Holds the Status it came from.
class Error : public std::exception {
 public:
  explicit Error(Status status) : status_(std::make_shared<const Status>(std::move(status))) {
    what_ = std::make_shared<const std::string>(status_->message());
  }
  const Status& status() const { return *status_; }
  const char* what() const noexcept override { return what_->c_str(); }

 private:
  // Shared, because copying an exception must not throw.
  std::shared_ptr<const Status> status_;
  std::shared_ptr<const std::string> what_;
};
#endif

namespace internal {
[[noreturn]] inline void raise(Status status) {
#if defined(__cpp_exceptions)
  throw Error(std::move(status));
#else
  (void)status;
  std::abort();
#endif
}
}  // namespace internal

inline void Status::value() const {
  if (!ok()) internal::raise(clone());
}

// A T, or the Status that says why there is none.  Member names are those of std::expected, but
// what a temporary holds is returned by value: for (auto& kernel : problem.kernels(arch).value())
// is safe.
template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): `return value;` is the point of the class.
  Result(T value) : data_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): `return status;` likewise.
  Result(Status error) : data_(std::in_place_index<1>, std::move(error)) {
    assert(!this->error().ok());
  }

  bool has_value() const { return data_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  // Requires: has_value().
  T& operator*() & { return *std::get_if<0>(&data_); }
  const T& operator*() const& { return *std::get_if<0>(&data_); }
  T operator*() && { return std::move(*std::get_if<0>(&data_)); }
  T* operator->() { return std::get_if<0>(&data_); }
  const T* operator->() const { return std::get_if<0>(&data_); }
  // Requires: !has_value().
  const Status& error() const& { return *std::get_if<1>(&data_); }
  Status error() && { return std::move(*std::get_if<1>(&data_)); }

  // The value; an error throws Error or aborts.
  T& value() & {
    if (!has_value()) internal::raise(error().clone());
    return **this;
  }
  const T& value() const& {
    if (!has_value()) internal::raise(error().clone());
    return **this;
  }
  T value() && {
    if (!has_value()) internal::raise(error().clone());
    return *std::move(*this);
  }

 private:
  std::variant<T, Status> data_;
};

// Returns the error of `expr`, a Status, from the enclosing function; goes on when it is OK.
#define CUBINERY_RETURN_IF_ERROR(expr)                                        \
  do {                                                                        \
    if (::cubinery::Status cubinery_status_ = (expr); !cubinery_status_.ok()) \
      return cubinery_status_;                                                \
  } while (false)

}  // namespace cubinery
