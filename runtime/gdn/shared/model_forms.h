// The forms in which a model needs the operators: the one list that the command line, C and Python
// take the problems of a model from.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>

#include "cubinery/gdn_models.h"

namespace cubinery::gdn {

template <class P>
struct ModelForm {
  std::string_view name;  // as the member is called
  std::string_view help;
  P ModelProblems::*problem;
  std::string_view instead{};  // forms that do the same together; a model is whole without this one
};
// Before clang 17 none is made for an aggregate.
template <class P>
ModelForm(std::string_view, std::string_view, P ModelProblems::*) -> ModelForm<P>;
template <class P>
ModelForm(std::string_view, std::string_view, P ModelProblems::*, std::string_view) -> ModelForm<P>;

// Persistent: names are those of C and the command line.  The first form of an operator is what
// cubinery_problem_for_model() gives.
inline constexpr std::tuple kModelForms{
    ModelForm{"decode", "one token of each request", &ModelProblems::decode},
    ModelForm{"decode_with_conv", "decode and conv_decode in one launch",
              &ModelProblems::decode_with_conv, "decode and conv_decode"},
    ModelForm{"prefill", "packed sequences", &ModelProblems::prefill},
    ModelForm{"verify", "packed draft tokens", &ModelProblems::verify},
    ModelForm{"commit", "those that were accepted", &ModelProblems::commit},
    ModelForm{"conv", "in front of prefill: packed sequences", &ModelProblems::conv},
    ModelForm{"conv_decode", "in front of decode: dense, one token of each request",
              &ModelProblems::conv_decode},
    ModelForm{"conv_verify", "in front of verify: packed draft tokens behind those accepted",
              &ModelProblems::conv_verify},
};

template <class... P>
constexpr std::size_t size_of_forms(const std::tuple<ModelForm<P>...>&) {
  return (sizeof(P) + ...);
}
static_assert(size_of_forms(kModelForms) == sizeof(ModelProblems), "a member is no form");

}  // namespace cubinery::gdn
