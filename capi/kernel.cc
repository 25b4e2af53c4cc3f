// The C functions of kernels that are given as text.
#include "cubinery/kernel.h"

#include <optional>
#include <utility>

#include "capi/arguments.h"
#include "capi/documents.h"
#include "capi/for_python.h"
#include "capi/handles.h"
#include "capi/last_error.h"
#include "codegen/source_name.h"

struct CubineryKernel {
  cubinery::Kernel value;
};

namespace cubinery::capi {
namespace {

Status read_texts(std::string_view name, const char* const* texts, std::size_t count,
                  std::vector<std::string>* read) {
  if (count > 0) CUBINERY_RETURN_IF_ERROR(not_null(name, texts));
  for (std::size_t i = 0; i < count; ++i) {
    CUBINERY_RETURN_IF_ERROR(not_null(fmt::format("{}[{}]", name, i), texts[i]));
    read->emplace_back(texts[i]);
  }
  return {};
}

Status read_flag(std::string_view name, std::uint64_t flag, bool* read) {
  *read = flag == 1;
  if (flag <= 1) return {};
  return Status(Code::kInvalidArgument, fmt::format("{} is {}; accepted: 0, 1", name, flag));
}

Status read_compiler(const char* given, Compiler* read) {
  if (given == nullptr) return {};
  const std::optional<Compiler> compiler = compiler_called(given);
  if (!compiler) {
    return Status(Code::kInvalidArgument,
                  fmt::format("source->compiler is \"{}\"; accepted: nvrtc, nvcc", given));
  }
  *read = *compiler;
  return {};
}

Status read_launch(const CubineryKernelLaunch* launch, Launch* read) {
  CubineryKernelLaunch given;
  CUBINERY_RETURN_IF_ERROR(read_struct("launch", launch, &given));
  read->grid = {given.grid_x, given.grid_y, given.grid_z};
  read->block = {given.block_x, given.block_y, given.block_z};
  read->cluster = {given.cluster_x, given.cluster_y, given.cluster_z};
  read->shared_bytes = given.shared_bytes;
  CUBINERY_RETURN_IF_ERROR(read_flag("launch->cooperative", given.cooperative, &read->cooperative));
  return read_flag("launch->enable_pdl", given.enable_pdl, &read->enable_pdl);
}

// Of what the call was given, what the kernel could read from.
Status check_arguments(void* const* args, const std::size_t* sizes, std::size_t count) {
  if (count == 0) return {};
  CUBINERY_RETURN_IF_ERROR(not_null("args", args));
  CUBINERY_RETURN_IF_ERROR(not_null("sizes", sizes));
  for (std::size_t i = 0; i < count; ++i) {
    if (args[i] == nullptr) return not_null(fmt::format("args[{}]", i), nullptr);
  }
  return {};
}

Json json_of(const KernelInfo& info) {
  return {{"kernel", info.kernel},
          {"canonical", info.canonical},
          {"arch", info.arch},
          {"nvrtc", info.nvrtc},
          {"symbol", info.symbol},
          {"registers", info.registers},
          {"static_shared_bytes", info.static_shared_bytes},
          {"spill_store_bytes", info.spill_store_bytes},
          {"spill_load_bytes", info.spill_load_bytes},
          {"compile_ms", info.compile_ms},
          {"log", info.log}};
}

}  // namespace

Status read_source(const CubineryKernelSource* source, KernelSource* read) {
  CubineryKernelSource given;
  CUBINERY_RETURN_IF_ERROR(read_struct("source", source, &given));
  CUBINERY_RETURN_IF_ERROR(not_null("source->name", given.name));
  CUBINERY_RETURN_IF_ERROR(not_null("source->source", given.source));
  read->name = given.name;
  read->source = given.source;
  CUBINERY_RETURN_IF_ERROR(
      read_texts("source->includes", given.includes, given.include_count, &read->includes));
  CUBINERY_RETURN_IF_ERROR(
      read_texts("source->options", given.options, given.option_count, &read->options));
  bool forbid_spills = false;
  CUBINERY_RETURN_IF_ERROR(read_flag("source->forbid_spills", given.forbid_spills, &forbid_spills));
  read->allow_spills = !forbid_spills;
  CUBINERY_RETURN_IF_ERROR(read_compiler(given.compiler, &read->compiler));
  return read_flag("source->share_headers", given.share_headers, &read->share_headers);
}

const Kernel& value_of(const CubineryKernel* kernel) { return kernel->value; }

}  // namespace cubinery::capi

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_kernel_from_source(const CubineryContext* context, const CubineryKernelSource* source,
                                CubineryKernel** kernel) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("kernel", kernel));
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    KernelSource given;
    CUBINERY_RETURN_IF_ERROR(read_source(source, &given));
    Result<Kernel> made = context->value.get(given);
    if (!made) return std::move(made).error();
    *kernel = new CubineryKernel{*std::move(made)};
    return {};
  });
}

void cubinery_kernel_destroy(CubineryKernel* kernel) { cubinery::capi::destroy(kernel); }

int cubinery_kernel_launch(const CubineryKernel* kernel, void* stream,
                           const CubineryKernelLaunch* launch, void* const* args,
                           const size_t* sizes, size_t count) {
  return reported([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("kernel", kernel));
    Launch given;
    CUBINERY_RETURN_IF_ERROR(read_launch(launch, &given));
    CUBINERY_RETURN_IF_ERROR(check_arguments(args, sizes, count));
    return kernel->value.launch_array(static_cast<Stream>(stream), given, args, sizes, count);
  });
}

int cubinery_kernel_info(const CubineryKernel* kernel, char** info) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("info", info));
    CUBINERY_RETURN_IF_ERROR(not_null("kernel", kernel));
    Json document = json_of(kernel->value.info());
    document["parameter_bytes"] = kernel->value.parameter_bytes();
    *info = json_text(document);
    return {};
  });
}

int cubinery_context_compile_source(const CubineryContext* context,
                                    const CubineryKernelSource* source, char** report) {
  return guarded([&]() -> Status {
    if (report != nullptr) *report = nullptr;
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    KernelSource given;
    CUBINERY_RETURN_IF_ERROR(read_source(source, &given));
    const Result<CompiledKernel> compiled = context->value.compile(given);
    if (!compiled) return compiled.error().clone();
    if (report == nullptr) return {};
    Json document = json_of(compiled->info);
    document["source"] = to_string(compiled->source);
    document["path"] = compiled->path;
    *report = json_text(document);
    return {};
  });
}

int cubinery_context_explain_source(const CubineryContext* context,
                                    const CubineryKernelSource* source, char** report) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("report", report));
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    KernelSource given;
    CUBINERY_RETURN_IF_ERROR(read_source(source, &given));
    const Result<Explanation> found = context->value.explain(given);
    if (!found) return found.error().clone();
    *report = json_text(json_of(found->info.kernel, found->info.canonical, *found));
    return {};
  });
}

int cubinery_context_listing(const CubineryContext* context, const CubineryKernelSource* source,
                             const char* form, char** text) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("text", text));
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    CUBINERY_RETURN_IF_ERROR(not_null("form", form));
    const std::string_view name = form;
    if (name != "ptx" && name != "sass") {
      return Status(Code::kInvalidArgument,
                    fmt::format("form = \"{}\"; accepted: ptx, sass", name));
    }
    KernelSource given;
    CUBINERY_RETURN_IF_ERROR(read_source(source, &given));
    const Result<std::string> made =
        context->value.listing(given, name == "ptx" ? Listing::kPtx : Listing::kSass);
    if (!made) return made.error().clone();
    *text = new_text(*made);
    return {};
  });
}
