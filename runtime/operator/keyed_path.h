// A path whose kernels have keys: what follows from their field tables.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cubinery/fields.h"
#include "results/space.h"
#include "runtime/operator/path.h"

namespace cubinery {

// Sets every fixed field of `key` to the problem's field of the same name.
template <class Problem, class Key>
void copy_fields(const Problem& problem, Key* key) {
  internal::copy_fields(internal::table_of<Problem>(), &problem, internal::table_of<Key>(), key);
}

// Sets every tuned field of `key` to the value that is named `prefix` and the field's name, or the
// field's name alone where kernels share it.  False: one is missing, or the field does not take it.
bool set_tuned_fields(const std::vector<TunedValue>& values, std::string_view prefix,
                      const internal::Table& table, void* key);

// Whether two keys have the same values in every field.
template <class Key>
bool same_fields(const Key& a, const Key& b) {
  return internal::same_fields(internal::table_of<Key>(), &a, &b);
}

// Keys without parameters are no kernel's: choices that the path's launches depend on.
template <class Key>
inline constexpr bool kIsKernel = requires {
  typename Fields<Key>::Params;
};

// "gate_mode = alpha; accepted: none, log", of the rule "gate_mode must be none or log".
// `fields`: the key's.
std::string refusal_text(std::string_view rule, const std::vector<FieldText>& fields);

// One key of a path, as values name its tuned fields.
struct KernelNames {
  std::string_view prefix;  // "scan.": "scan.warps"; empty where the path has one kernel
  // A tuned field that the kernels share: one value without a prefix.
  std::string_view shared{};
};

// The path's kernels have the keys `Keys`, in the order of their launches; those that are no
// kernel's stand behind them.
template <class Problem, class Runner, class... Keys>
class KeyedPath : public Path<Problem, Runner> {
 public:
  using KeySet = std::tuple<Keys...>;
  using Values = std::vector<TunedValue>;
  using typename Path<Problem, Runner>::CandidatePtr;

  KeyedPath(std::string_view name, std::array<KernelNames, sizeof...(Keys)> names)
      : name_(name), names_(names) {}

  std::string_view name() const final { return name_; }
  std::vector<std::string> kernels() const final {
    std::vector<std::string> names;
    (add_kernel_name<Keys>(&names), ...);
    return names;
  }

  // What the `inputs` of its keys refuse, a part with rules of its own, then the path itself.
  std::optional<std::string> why_not(const Problem& problem, const Target& target) const final {
    std::optional<std::string> reason;
    const auto look = [&](const auto& key) {
      if constexpr (requires { why_inputs_invalid(key); }) {
        const char* const rule = why_inputs_invalid(key);
        if (!reason && rule != nullptr) reason = refusal_text(rule, field_texts(key));
      }
    };
    std::apply([&](const auto&... key) { (look(key), ...); }, fixed_keys(problem));
    return reason ? reason : why_not_here(problem, target);
  }

  std::vector<CandidatePtr> candidates(const Problem& problem, const Target& target) const final {
    return of_keys(all_keys(problem, target), problem, target);
  }
  std::vector<CandidatePtr> defaults(const Problem& problem, const Target& target) const final {
    return of_keys(default_keys(problem, target), problem, target);
  }
  CandidatePtr find(const Problem& problem, const Values& values,
                    const Target& target) const final {
    const std::optional<KeySet> keys = keys_of(problem, values, target);
    return keys ? of_keys({*keys}, problem, target).front() : nullptr;
  }

  // The keys that values stand for; nullopt: they are not those of a configuration.
  std::optional<KeySet> keys_of(const Problem& problem, const Values& values,
                                const Target& target) const;

  // The path, then the tuned fields of all kernels, those that they share once.
  Values values_of(const KeySet& keys) const;

  // The keys of a problem, their tuned fields at their defaults.
  KeySet fixed_keys(const Problem& problem) const;

  // The keys of defaults(), and of candidates(): every choice of the tuned fields that fits.
  virtual std::vector<KeySet> default_keys(const Problem& problem, const Target& target) const = 0;
  virtual std::vector<KeySet> all_keys(const Problem& problem, const Target& target) const {
    std::vector<KeySet> all;
    KeySet keys = fixed_keys(problem);
    for_each_choice<0>(&keys, [&] {
      if (fits(problem, keys, target)) all.push_back(keys);
    });
    return all;
  }

 protected:
  // As why_not(), of problems whose keys' parts are valid.
  virtual std::optional<std::string> why_not_here(const Problem&, const Target&) const {
    return std::nullopt;
  }
  // The rule that the first of the keys breaks.
  static std::optional<std::string> rule_of(const KeySet& keys) {
    const char* const rule = why_invalid(std::get<0>(keys));
    return rule == nullptr ? std::nullopt : std::optional<std::string>(rule);
  }
  // Whether the kernels run together, and on the target.
  virtual bool fits(const Problem&, const KeySet& keys, const Target&) const {
    return std::apply([](const auto&... key) { return ((why_invalid(key) == nullptr) && ...); },
                      keys);
  }
  // What it depends on but for the size is computed here, once.
  virtual Cost cost(const Problem& problem, const KeySet& keys, const Target& target) const = 0;
  virtual std::unique_ptr<const Runner> loaded(const Problem& problem, const KeySet& keys,
                                               const Target& target,
                                               std::vector<Kernel> kernels) const = 0;
  // Sets the fixed fields by which the path's kernels differ from those of other paths.
  virtual void set_own_fields(KeySet*) const {}
  // Kernels that launches may need besides those of the keys; they stand behind them.
  virtual void add_other_kernels(const KeySet&, std::vector<KernelSpec>*) const {}
  // Where the table says that a field changes bits and for some keys it does not.
  virtual void correct_bits(const KeySet&, Values*) const {}

 private:
  // What the candidates of one question share.
  struct Setting {
    Problem problem;
    Target target;
  };

  class KeyedCandidate final : public CandidateOf<Runner> {
   public:
    KeyedCandidate(const KeyedPath* path, std::shared_ptr<const Setting> setting,
                   const KeySet& keys)
        : path_(path),
          setting_(std::move(setting)),
          keys_(keys),
          cost_(path->cost(setting_->problem, keys, setting_->target)) {}

    Values values() const override { return path_->values_of(keys_); }
    std::vector<KernelSpec> kernels() const override {
      std::vector<KernelSpec> specs;
      std::apply([&](const auto&... key) { (add_spec(key, &specs), ...); }, keys_);
      path_->add_other_kernels(keys_, &specs);
      return specs;
    }
    double us(const Point& at) const override { return cost_(at); }
    std::unique_ptr<const Runner> runner(std::vector<Kernel> kernels) const override {
      return path_->loaded(setting_->problem, keys_, setting_->target, std::move(kernels));
    }

   private:
    const KeyedPath* path_;  // paths live as long as the process
    std::shared_ptr<const Setting> setting_;
    KeySet keys_;
    Cost cost_;
  };

  std::vector<CandidatePtr> of_keys(const std::vector<KeySet>& all, const Problem& problem,
                                    const Target& target) const {
    const auto setting = std::make_shared<const Setting>(Setting{problem, target});
    std::vector<CandidatePtr> made;
    made.reserve(all.size());
    for (const KeySet& keys : all) {
      made.push_back(std::make_shared<const KeyedCandidate>(this, setting, keys));
    }
    return made;
  }

  template <class Key>
  static void add_kernel_name(std::vector<std::string>* names) {
    if constexpr (kIsKernel<Key>) names->emplace_back(Fields<Key>::kName);
  }
  // Requires: the key is valid.
  template <class Key>
  static void add_spec(const Key& key, std::vector<KernelSpec>* specs) {
    if constexpr (kIsKernel<Key>) specs->push_back(*spec_of(key));
  }

  // Calls f() for every choice of the tuned fields of all kernels; those of the last vary fastest.
  template <std::size_t kIndex, class Function>
  static void for_each_choice(KeySet* keys, const Function& f) {
    if constexpr (kIndex == sizeof...(Keys)) {
      f();
    } else {
      for_each_candidate(std::get<kIndex>(*keys), [&](const auto& candidate) {
        std::get<kIndex>(*keys) = candidate;
        for_each_choice<kIndex + 1>(keys, f);
      });
    }
  }

  template <std::size_t... kIndex>
  bool set_tuned(const Values& values, KeySet* keys, std::index_sequence<kIndex...>) const {
    return (set_tuned_fields(values, names_[kIndex].prefix, internal::table_of<Keys>(),
                             &std::get<kIndex>(*keys)) &&
            ...);
  }

  template <std::size_t... kIndex>
  void add_values(const KeySet& keys, std::index_sequence<kIndex...>, Values* values) const {
    (add_values(names_[kIndex], std::get<kIndex>(keys), values), ...);
    correct_bits(keys, values);
  }

  template <class Key>
  static void add_values(const KernelNames& names, const Key& key, Values* values) {
    for (TunedValue& value : tuned_values(key)) {
      if (value.name == names.shared) {
        const auto same = [&](const TunedValue& other) { return other.name == value.name; };
        if (std::any_of(values->begin(), values->end(), same)) continue;
      } else {
        value.name.insert(0, names.prefix);
      }
      values->push_back(std::move(value));
    }
  }

  std::string name_;
  std::array<KernelNames, sizeof...(Keys)> names_;
};

template <class Problem, class Runner, class... Keys>
auto KeyedPath<Problem, Runner, Keys...>::keys_of(const Problem& problem, const Values& values,
                                                  const Target& target) const
    -> std::optional<KeySet> {
  KeySet keys = fixed_keys(problem);
  if (!set_tuned(values, &keys, std::index_sequence_for<Keys...>()) ||
      !fits(problem, keys, target) || values_of(keys) != values) {
    return std::nullopt;
  }
  return keys;
}

template <class Problem, class Runner, class... Keys>
auto KeyedPath<Problem, Runner, Keys...>::values_of(const KeySet& keys) const -> Values {
  Values values{
      {.name = std::string(kPath), .value = name_, .is_text = true, .changes_bits = true}};
  add_values(keys, std::index_sequence_for<Keys...>(), &values);
  return values;
}

template <class Problem, class Runner, class... Keys>
auto KeyedPath<Problem, Runner, Keys...>::fixed_keys(const Problem& problem) const -> KeySet {
  const Problem normal = normalised(problem);
  KeySet keys;
  std::apply([&](auto&... key) { (copy_fields(normal, &key), ...); }, keys);
  set_own_fields(&keys);
  return keys;
}

}  // namespace cubinery
