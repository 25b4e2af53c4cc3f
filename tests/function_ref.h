// A function as a parameter.  std::function would do; for each lambda it takes ten times as long to
// compile, and tests have hundreds.
#pragma once

namespace cubinery {

template <class Signature>
class FunctionRef;

// Refers to what it is made of, which lives at least as long.
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Function>
  // NOLINTNEXTLINE(google-explicit-constructor): a lambda is passed as it is.
  FunctionRef(const Function& function)
      : function_(&function), call_([](const void* object, Arguments... arguments) -> Result {
          return static_cast<Result>((*static_cast<const Function*>(object))(arguments...));
        }) {}

  Result operator()(Arguments... arguments) const { return call_(function_, arguments...); }

 private:
  const void* function_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace cubinery
