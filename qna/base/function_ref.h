// A reference to any callable, for parameters: it allocates nothing, as std::function does for
// callables of more than two words. The callable must outlive the call.
#pragma once

#include <type_traits>
#include <utility>

namespace qna {

template <typename Signature>
class FunctionRef;

template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <typename Callable>
  requires(!std::is_same_v<Callable, FunctionRef>) FunctionRef(const Callable& callable)
      : callable_(&callable), call_([](const void* object, Arguments... arguments) -> Result {
          return (*static_cast<const Callable*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(callable_, std::forward<Arguments>(arguments)...);
  }

 private:
  const void* callable_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace qna
