#include "tests/gpu/gdn_case.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "tuner/gdn/rounding.h"

namespace cubinery::test {
namespace {

std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

std::shared_ptr<Storage> make_storage(const Gpu& gpu, std::int64_t elements, DType dtype) {
  const std::size_t bytes = idx(elements) * idx(size_of(dtype));
  auto storage = std::make_shared<Storage>();
  storage->bytes.assign(bytes, std::byte{DeviceBuffer::kPoison});
  storage->device = DeviceBuffer(gpu, bytes);
  return storage;
}

void place(Operand* operand) {
  operand->view.data = static_cast<std::byte*>(operand->storage->device.data()) +
                       operand->first * size_of(operand->view.dtype);
}

Operand make_vector(const Gpu& gpu, DType dtype, std::int64_t count, Placement placement) {
  Operand operand{.batch_stride = placement == Placement::kUnaligned ? 2 : 1};
  operand.view = {.dtype = dtype, .rank = 1, .shape = {count}, .strides = {operand.batch_stride}};
  operand.storage = make_storage(gpu, count * operand.batch_stride, dtype);
  place(&operand);
  return operand;
}

void store_row(DType dtype, std::byte* to, const std::vector<float>& row) {
  for (const float value : row) {
    store(dtype, to, value);
    to += size_of(dtype);
  }
}

void store_index(const Operand& operand, std::int64_t n, std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  const bool wide = operand.view.dtype == DType::kI64;
  std::memcpy(operand.at(n, 0), wide ? static_cast<const void*>(&value) : &narrow,
              wide ? sizeof(value) : sizeof(narrow));
}

std::int64_t load_index(const Operand& operand, std::int64_t n) {
  std::int64_t wide = 0;
  std::int32_t narrow = 0;
  if (operand.view.dtype == DType::kI64) {
    std::memcpy(&wide, operand.at(n, 0), sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, operand.at(n, 0), sizeof(narrow));
  return narrow;
}

void add_dimension(Tensor* tensor, std::int64_t extent, std::int64_t stride) {
  const auto d = static_cast<std::size_t>(tensor->rank++);
  tensor->shape[d] = extent;
  tensor->strides[d] = stride;
}

void slice(Tensor* tensor, int dimension, std::int64_t first, std::int64_t count) {
  if (!tensor->present()) return;
  const auto d = static_cast<std::size_t>(dimension);
  tensor->data =
      static_cast<std::byte*>(tensor->data) + first * tensor->strides[d] * size_of(tensor->dtype);
  tensor->shape[d] = count;
}

void upload(const std::vector<const Operand*>& operands) {
  for (const Operand* operand : operands) {
    if (operand->storage) operand->storage->device.upload(operand->storage->bytes);
  }
}

bool guards_intact(const std::vector<const Operand*>& operands) {
  return std::all_of(operands.begin(), operands.end(), [](const Operand* operand) {
    return !operand->storage || operand->storage->device.guards_intact();
  });
}

std::vector<std::byte> download(const Operand& operand) {
  return operand.storage ? operand.storage->device.download() : std::vector<std::byte>();
}

std::string text(const Comparison& comparison, const char* name) {
  const Comparison::Index& index = comparison.index;
  std::ostringstream out;
  out.precision(9);
  out << name << ": worst at request " << index[0] << ", head " << index[1] << ", "
      << (std::string_view(name) == "o" ? "token " : "span ") << index[2] << ", element ("
      << index[3] << ", " << index[4] << "): " << comparison.actual << ", reference "
      << comparison.expected << ", error " << comparison.worst << " = "
      << 100 * comparison.worst / comparison.budget() << " % of the budget (naive error "
      << comparison.naive << ")";
  return out.str();
}

std::string Verdict::text() const {
  std::string all = test::text(o, "o") + "\n" + test::text(state, "state");
  if (checkpoints.magnitude != 0) all += "\n" + test::text(checkpoints, "checkpoints");
  return all;
}

std::string first_difference(const Results& results, const Results& expected) {
  const auto compare = [](const char* name, const std::vector<std::byte>& after,
                          const std::vector<std::byte>& before) -> std::string {
    if (after == before) return "";
    const auto [a, b] = std::mismatch(after.begin(), after.end(), before.begin(), before.end());
    return std::string(name) + ": byte " + std::to_string(a - after.begin()) + " of " +
           std::to_string(before.size()) + " was written by no request of the batch, but changed";
  };
  std::string fault = compare("o", results.o, expected.o);
  if (fault.empty()) fault = compare("state", results.state, expected.state);
  if (fault.empty()) fault = compare("state_out", results.state_out, expected.state_out);
  if (fault.empty()) fault = compare("checkpoints", results.checkpoints, expected.checkpoints);
  return fault;
}

void forgive(const std::vector<std::byte>& results, std::vector<std::byte>* expected,
             std::size_t offset, std::int64_t count) {
  std::memcpy(expected->data() + offset, results.data() + offset, idx(count));
}

}  // namespace cubinery::test
