/* The library in C11: for engines in C, Rust and other languages, and for the Python package.
 *
 *   CubineryContext* context = NULL;
 *   if (cubinery_context_create(NULL, &context) != CUBINERY_OK) puts(cubinery_last_error());
 *   CubineryDecode* decode = NULL;
 *   cubinery_decode_create(context, "{\"v_heads\":32,\"use_qk_l2norm\":true}", &decode);
 *   CubineryDecodeArgs args = CUBINERY_DECODE_ARGS_INIT;
 *   args.q = &q;  // and so on: DLTensor views of device memory
 *   cubinery_decode_launch(decode, stream, &args);
 *
 * It mirrors the C++ API one to one; the C++ headers named below say what each operator computes
 * and takes.  Functions that can fail return a CubineryCode; after any other than CUBINERY_OK,
 * cubinery_last_error() is the message.  No exception leaves the library.
 *
 * Threads.  Handles may be used from any thread at the same time, except while they are destroyed
 * or, for CubineryOptions, changed.  A context may be destroyed before the operators made from it.
 * In a child of fork() contexts and operators of the parent are CUBINERY_UNSUPPORTED (launches
 * CUBINERY_DRIVER), and can be destroyed: make contexts after fork().  pthread_cancel() of a thread
 * takes effect when the call that it is in has returned.  Launches leave the cancellation state
 * as it is, for their time: they have no cancellation point but the driver's, and are to be called
 * with cancellation deferred or disabled.  A callback must return: no pthread_exit(), no longjmp().
 *
 * Versions.  From 0.1.0 on, CUBINERY_C_API_VERSION grows when something is added, and
 * what was added says in which version; nothing is removed, renumbered or reordered.  Structs begin
 * with their size in bytes and have no padding: the library takes the fields that an older caller
 * does not know as zero, and refuses a struct longer than its own.
 *
 * Errors.  NULL is CUBINERY_INVALID_ARGUMENT wherever nothing else is said; destroying NULL does
 * nothing.  After an error, handles and texts that were to be returned are NULL.
 */
#ifndef CUBINERY_C_API_H_
#define CUBINERY_C_API_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#include "cubinery/c_args.h"

#define CUBINERY_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

#define CUBINERY_C_API_VERSION 1

/* The codes of cubinery/status.h, which says what each asks of the caller. */
typedef enum CubineryCode {
  CUBINERY_OK = 0,
  CUBINERY_INVALID_ARGUMENT = 1,
  CUBINERY_INVALID_KEY = 2,
  CUBINERY_COMPILE_FAILED = 3,
  CUBINERY_NOT_CACHED = 4,
  CUBINERY_UNSUPPORTED = 5,
  CUBINERY_DRIVER = 6,
  CUBINERY_IO = 7,
  CUBINERY_INTERNAL = 100 /* out of memory, or an error in the library itself */
} CubineryCode;

/* CUBINERY_C_API_VERSION of the library that was loaded. */
CUBINERY_C_API int cubinery_c_api_version(void);
/* The library's version, "0.1.0". */
CUBINERY_C_API const char* cubinery_version(void);
/* The architectures that cubins can be compiled for, "sm_80,sm_86,...". */
CUBINERY_C_API const char* cubinery_architectures(void);
/* "InvalidArgument"; "Unknown" for a number that is no code. */
CUBINERY_C_API const char* cubinery_code_name(int code);

/* What went wrong in the last call of this thread that failed; valid until the next one that fails.
 * Never NULL. */
CUBINERY_C_API const char* cubinery_last_error(void);
/* The compiler's log of CUBINERY_COMPILE_FAILED; empty for all other errors. */
CUBINERY_C_API const char* cubinery_last_error_log(void);

/* Text that a call returned through a char**. */
CUBINERY_C_API void cubinery_free_text(char* text);

/* ---- Options (cubinery/options.h) ------------------------------------------------------------ */

typedef struct CubineryOptions CubineryOptions;

/* level: 0 information, 1 warning.  `message` ends with '\0' and is valid during the call. */
typedef void (*CubineryLog)(int level, const char* message, void* user);

/* Options as the environment gives them (Options::from_env in cubinery/options.h lists the
 * variables).  A privileged process (setuid, setgid, file capabilities) reads none of them: every
 * option then has its default. */
CUBINERY_C_API int cubinery_options_create(CubineryOptions** options);
CUBINERY_C_API void cubinery_options_destroy(CubineryOptions* options);
/* Sets a field of cubinery::Options by its name; paths of lists are separated by colons, booleans
 * are "0" or "1", lock_wait is in milliseconds, cache_limit_bytes in bytes or with K, M, G or T
 * (powers of 1024).  CUBINERY_INVALID_ARGUMENT: no such field, or a
 * value that it does not take. */
CUBINERY_C_API int cubinery_options_set(CubineryOptions* options, const char* field,
                                        const char* value);
/* Called from any thread that calls the library, possibly from several at once; must not call it.
 * NULL: silent. */
CUBINERY_C_API int cubinery_options_set_log(CubineryOptions* options, CubineryLog log, void* user);

/* ---- Context (cubinery/context.h) ------------------------------------------------------------ */

typedef struct CubineryContext CubineryContext;

/* options: NULL for those of the environment. */
CUBINERY_C_API int cubinery_context_create(const CubineryOptions* options,
                                           CubineryContext** context);
CUBINERY_C_API void cubinery_context_destroy(CubineryContext* context);
/* "sm_90a"; lives as long as the context.  Of NULL: "". */
CUBINERY_C_API const char* cubinery_context_arch(const CubineryContext* context);
/* The device ordinal; -1 without one, or for NULL. */
CUBINERY_C_API int cubinery_context_device(const CubineryContext* context);
/* Streaming multiprocessors; 0 without a device, or for NULL. */
CUBINERY_C_API int cubinery_context_sm_count(const CubineryContext* context);
/* "13.0.88", for cubinery_free_text(). */
CUBINERY_C_API int cubinery_context_nvrtc_version(const CubineryContext* context, char** version);

typedef struct CubineryCacheStats {
  size_t struct_size;
  uint64_t memory_hits;
  uint64_t disk_hits;
  uint64_t misses;
  uint64_t compiles;
  uint64_t damaged;
  uint64_t failed_writes;
} CubineryCacheStats;
#define CUBINERY_CACHE_STATS_INIT \
  { sizeof(CubineryCacheStats), 0, 0, 0, 0, 0, 0 }

/* Fills *stats up to its struct_size. */
CUBINERY_C_API int cubinery_context_stats(const CubineryContext* context,
                                          CubineryCacheStats* stats);

/* ---- Problems --------------------------------------------------------------------------------
 * A problem is flat JSON with the fields of gdn::DecodeProblem (op "gdn_decode"),
 * gdn::PrefillProblem ("gdn_prefill"), gdn::VerifyProblem ("gdn_verify"), gdn::CommitProblem
 * ("gdn_commit") or gdn::ConvProblem ("gdn_conv"): {"k_heads":16,"dtype":"bf16","gate_mode":"log"}.
 * Missing fields keep their default. */

/* The operators and the fields of their problems, for bindings: a JSON array of {"op", "help",
 * "fields": [{"name", "type": "integer" | "boolean" | "string", "default", "choices" (of strings),
 * "help"}], "forms": [{"name", "help"}], "tensors", "numbers", ...}: the forms in which a model
 * needs the operator, and the arguments of its launches. */
CUBINERY_C_API const char* cubinery_operators(void);
/* *full: the problem with every field, for cubinery_free_text().  CUBINERY_INVALID_ARGUMENT:
 * malformed, an unknown field or value, or a combination that is not supported. */
CUBINERY_C_API int cubinery_check_problem(const char* op, const char* problem, char** full);
/* What engines serve a model with: *problem is the operator's, in its first form, with every field,
 * for cubinery_free_text().  config: the text of the model's config.json; tp: the tensor-parallel
 * size, which divides its heads.  cubinery_decode_create() finds the kernels that
 * `cubinery prewarm --hf-config config.json --tp 2` compiled (gdn::problems_for_model()).
 * CUBINERY_INVALID_ARGUMENT: not JSON, a model that is not known, or another size. */
CUBINERY_C_API int cubinery_problem_for_model(const char* op, const char* config, int tp,
                                              char** problem);
/* The same in any form, a member of gdn::ModelProblems: "conv_decode" is for
 * cubinery_conv_create(). */
CUBINERY_C_API int cubinery_form_for_model(const char* form, const char* config, int tp,
                                           char** problem);
/* All forms at once, of a model with switches: *problems is {"decode": its problem, ...,
 * "left_out":
 * [{"form", "why"}]}, for cubinery_free_text(); left_out has the forms that the model cannot have.
 * options: NULL, or a JSON object of switches, each one property of the model ({"state_dtype":
 * "bf16", "draft_tokens": 8}: gdn::ModelOptions), and of "model_type", as which `config` is read
 * whatever it says. */
CUBINERY_C_API int cubinery_model_problems(const char* config, int tp, const char* options,
                                           char** problems);
/* What one engine launches for a model, "vllm", "sglang", "transformers", "fla", "flashinfer",
 * "tensorrt_llm" or "tokenspeed" (gdn::problems_for_engine()).  options: as above, and "functions":
 * true, the forms of single functions too, and "arch": of forms in the place of each other those of
 * that architecture. *problems: a JSON array of {"form", "op", "problem"}, "instead_of": a form in
 * whose place it is, and "left_out": why, of those that the model cannot have. */
CUBINERY_C_API int cubinery_engine_problems(const char* config, int tp, const char* engine,
                                            const char* options, char** problems);
/* Makes sure that the cache holds the problem's kernels, without loading them: needs no GPU.
 * *report: a JSON array of {"kernel", "canonical", "arch", "source": "memory" | "disk" |
 * "compiled", "path", "nvrtc", "registers", "spill_store_bytes", "spill_load_bytes", "compile_ms"};
 * may be NULL. */
CUBINERY_C_API int cubinery_context_compile(const CubineryContext* context, const char* op,
                                            const char* problem, char** report);
/* The same of many problems, side by side, each kernel once.  problems: a JSON array of {"op",
 * "problem"}, as cubinery_engine_problems() gives it: further members are passed over, and so are
 * problems with "left_out".  An error of one names its place among the others. */
CUBINERY_C_API int cubinery_context_compile_problems(const CubineryContext* context,
                                                     const char* problems, char** report);
/* Why the problem's kernels are, or are not, in the cache.  Compiles nothing.  *report: a JSON
 * array of {"kernel", "canonical", "identity", "source_path", "options", "cached", "path",
 * "nearest_path", "differences"}. */
CUBINERY_C_API int cubinery_context_explain(const CubineryContext* context, const char* op,
                                            const char* problem, char** report);

/* ---- Kernels given as text (cubinery/kernel_source.h) ------------------------------------------
 *   CubineryKernelSource source = CUBINERY_KERNEL_SOURCE_INIT;
 *   source.name = "scale";
 *   source.source = "__global__ void scale(float* x, float by, int n) { ... }";
 *   cubinery_kernel_from_source(context, &source, &kernel);
 *
 *   CubineryKernelLaunch launch = CUBINERY_KERNEL_LAUNCH_INIT;
 *   launch.grid_x = blocks;
 *   launch.block_x = 256;
 *   void* args[] = {&x, &by, &n};
 *   size_t sizes[] = {sizeof x, sizeof by, sizeof n};
 *   cubinery_kernel_launch(kernel, stream, &launch, args, sizes, 3); */

typedef struct CubineryKernel CubineryKernel;

typedef struct CubineryKernelSource {
  size_t struct_size;
  const char* name;   /* of the __global__ function; "ns::scale<float, 4>"; "": the only one */
  const char* source; /* CUDA C++ */
  const char* const* includes; /* folders; NULL where there are none */
  size_t include_count;
  const char* const* options; /* of the compiler; NULL where there are none */
  size_t option_count;
  uint64_t forbid_spills; /* 1: a kernel that spills registers is CUBINERY_COMPILE_FAILED */
  const char* compiler;   /* "nvrtc", "nvcc" (cubinery::Compiler); NULL: "nvrtc" */
  uint64_t share_headers; /* 1: as cubinery::KernelSource says */
} CubineryKernelSource;
#define CUBINERY_KERNEL_SOURCE_INIT \
  { sizeof(CubineryKernelSource), NULL, NULL, NULL, 0, NULL, 0, 0, NULL, 0 }

/* cubinery::Launch: a block has to be given. */
typedef struct CubineryKernelLaunch {
  size_t struct_size;
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t cluster_x, cluster_y, cluster_z; /* 1, 1, 1: none */
  uint32_t shared_bytes;                    /* dynamic */
  uint32_t cooperative;                     /* 0 or 1 */
  uint32_t enable_pdl;                      /* 0 or 1 */
} CubineryKernelLaunch;
#define CUBINERY_KERNEL_LAUNCH_INIT \
  { sizeof(CubineryKernelLaunch), 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0 }

/* Loads or compiles the kernel: slow. */
CUBINERY_C_API int cubinery_kernel_from_source(const CubineryContext* context,
                                               const CubineryKernelSource* source,
                                               CubineryKernel** kernel);
CUBINERY_C_API void cubinery_kernel_destroy(CubineryKernel* kernel);
/* Enqueues the kernel with `count` arguments, sizes[i] bytes at args[i] each, which are read during
 * the call only.  CUBINERY_INVALID_ARGUMENT: another number than the kernel takes, or another size.
 * Does not allocate on success, lock or synchronise; may be captured in a graph. */
CUBINERY_C_API int cubinery_kernel_launch(const CubineryKernel* kernel, void* stream,
                                          const CubineryKernelLaunch* launch, void* const* args,
                                          const size_t* sizes, size_t count);
/* *info: {"kernel", "canonical", "arch", "nvrtc", "symbol", "registers", "static_shared_bytes",
 * "spill_store_bytes", "spill_load_bytes", "compile_ms", "log", "parameter_bytes": of each}, for
 * cubinery_free_text(). */
CUBINERY_C_API int cubinery_kernel_info(const CubineryKernel* kernel, char** info);
/* Makes sure that the cache holds the kernel, without loading it: needs no GPU.  *report: as above
 * without "parameter_bytes", with "source" and "path" as cubinery_context_compile() has them; may
 * be NULL. */
CUBINERY_C_API int cubinery_context_compile_source(const CubineryContext* context,
                                                   const CubineryKernelSource* source,
                                                   char** report);
/* Why the kernel is, or is not, in the cache: an object of cubinery_context_explain(). */
CUBINERY_C_API int cubinery_context_explain_source(const CubineryContext* context,
                                                   const CubineryKernelSource* source,
                                                   char** report);
/* The kernel as text, for cubinery_free_text().  form: "ptx", what the compiler hands to the
 * assembler, or "sass", what the GPU executes, by the toolkit's nvdisasm (cubinery::Listing). */
CUBINERY_C_API int cubinery_context_listing(const CubineryContext* context,
                                            const CubineryKernelSource* source, const char* form,
                                            char** text);

/* ---- Operators -------------------------------------------------------------------------------
 * The arguments of launches are the structs of cubinery/c_args.h, each begun from its _INIT:
 * CubineryDecodeArgs and others.  Tensors are DLTensors on the context's device (kDLCUDA with its
 * ordinal) or in managed memory (kDLCUDAManaged, which every device reaches); NULL where the
 * problem does not use them.  Their data, shape and strides are read during the call only.  Strides
 * may be NULL (row-major without gaps).  float32, bfloat16, float16, int32, int64; for states of
 * decode float8_e4m3fn and float8_e5m2 (DLPack's type codes 10 and 12, 8 bits); for flags of
 * convolutions bool (type code 6, 8 bits); one lane.  `stream` is a CUstream or cudaStream_t, NULL
 * the legacy default stream. */

typedef struct CubineryDecode CubineryDecode;

/* Loads or compiles the problem's kernels: slow. */
CUBINERY_C_API int cubinery_decode_create(const CubineryContext* context, const char* problem,
                                          CubineryDecode** decode);
CUBINERY_C_API void cubinery_decode_destroy(CubineryDecode* decode);
/* Enqueues one step.  Does not allocate on success, lock or synchronise; may be captured in a
 * graph. */
CUBINERY_C_API int cubinery_decode_launch(const CubineryDecode* decode, void* stream,
                                          const CubineryDecodeArgs* args);

/* What a batch of this size launches, and why: gdn::Decode::choice().  *choice: {"path":
 * "portable", "configuration": "path=portable;warp_v=16;...", "rung": "exact" | "nearest shape" |
 * "similar problem" | "same architecture" | "stale" | "default", "why"}, for cubinery_free_text().
 */
CUBINERY_C_API int cubinery_decode_choice(const CubineryDecode* decode, int64_t batch,
                                          char** choice);

typedef struct CubineryPrefill CubineryPrefill;

CUBINERY_C_API int cubinery_prefill_create(const CubineryContext* context, const char* problem,
                                           CubineryPrefill** prefill);
CUBINERY_C_API void cubinery_prefill_destroy(CubineryPrefill* prefill);
/* Bytes of workspace that every launch of at most this many tokens and sequences needs.  At sizes
   that launches refuse because no grid holds them this may be the largest number. */
CUBINERY_C_API int cubinery_prefill_workspace_bytes(const CubineryPrefill* prefill, int64_t tokens,
                                                    int64_t sequences, size_t* bytes);
/* What a launch of this size runs, and why, as cubinery_decode_choice().  max_seqlen: tokens of the
 * longest sequence; 0: not known. */
CUBINERY_C_API int cubinery_prefill_choice(const CubineryPrefill* prefill, int64_t tokens,
                                           int64_t sequences, int64_t max_seqlen, char** choice);
/* workspace: device memory, 256-byte aligned. */
CUBINERY_C_API int cubinery_prefill_launch(const CubineryPrefill* prefill, void* stream,
                                           const CubineryPrefillArgs* args, void* workspace,
                                           size_t workspace_bytes);

typedef struct CubineryRankPrefill CubineryRankPrefill;

/* A prefill on the ranks of an NCCL communicator (gdn::RankPrefill with NcclRanks): all ranks call
 * it.  nccl_comm: an ncclComm_t of the context's device, used until the handle is destroyed.
 * timeout_ms: how long it waits for other ranks, more than 0.  prefill: of the context; it may be
 * destroyed before. */
CUBINERY_C_API int cubinery_rank_prefill_create(const CubineryContext* context,
                                                const CubineryPrefill* prefill, void* nccl_comm,
                                                int64_t timeout_ms,
                                                CubineryRankPrefill** rank_prefill);
CUBINERY_C_API void cubinery_rank_prefill_destroy(CubineryRankPrefill* rank_prefill);
/* Enqueues a prefill of the rank's tokens, with what it exchanges.  args: without `step` and
 * `continues`.  source: the rank from which the first sequence goes on, -1 where it begins here;
 * target: the rank on which the last one goes on, -1 where it ends here. */
CUBINERY_C_API int cubinery_rank_prefill_launch(const CubineryRankPrefill* rank_prefill,
                                                void* stream, const CubineryPrefillArgs* args,
                                                void* workspace, size_t workspace_bytes, int source,
                                                int target);

typedef struct CubineryVerify CubineryVerify;

/* Loads or compiles the problem's kernels: slow. */
CUBINERY_C_API int cubinery_verify_create(const CubineryContext* context, const char* problem,
                                          CubineryVerify** verify);
CUBINERY_C_API void cubinery_verify_destroy(CubineryVerify* verify);
/* Enqueues one verification, as cubinery_decode_launch(). */
CUBINERY_C_API int cubinery_verify_launch(const CubineryVerify* verify, void* stream,
                                          const CubineryVerifyArgs* args);
/* What a launch of so many requests with so many tokens in all runs, and why, as
 * cubinery_decode_choice(). */
CUBINERY_C_API int cubinery_verify_choice(const CubineryVerify* verify, int64_t requests,
                                          int64_t tokens, char** choice);

typedef struct CubineryCommit CubineryCommit;

/* int64_t of each layer in a table. */
#define CUBINERY_COMMIT_LAYER_WORDS 32

/* Loads or compiles the problem's kernels: slow. */
CUBINERY_C_API int cubinery_commit_create(const CubineryContext* context, const char* problem,
                                          CubineryCommit** commit);
CUBINERY_C_API void cubinery_commit_destroy(CubineryCommit* commit);
/* gdn::Commit::table(): fills the caller's array of count * CUBINERY_COMMIT_LAYER_WORDS, to be
 * copied to the device.  After an error it is as it was. */
CUBINERY_C_API int cubinery_commit_table(const CubineryCommit* commit,
                                         const CubineryCommitLayer* layers, int64_t count,
                                         int64_t* words);
/* Enqueues one commit, as cubinery_decode_launch(). */
CUBINERY_C_API int cubinery_commit_launch(const CubineryCommit* commit, void* stream,
                                          const CubineryCommitArgs* args);
/* What a launch of so many requests in so many layers runs, and why, as cubinery_decode_choice().
 */
CUBINERY_C_API int cubinery_commit_choice(const CubineryCommit* commit, int64_t layers,
                                          int64_t requests, char** choice);

typedef struct CubineryConv CubineryConv;

/* Loads or compiles the problem's kernels: slow. */
CUBINERY_C_API int cubinery_conv_create(const CubineryContext* context, const char* problem,
                                        CubineryConv** conv);
CUBINERY_C_API void cubinery_conv_destroy(CubineryConv* conv);
/* Enqueues one convolution, as cubinery_decode_launch(). */
CUBINERY_C_API int cubinery_conv_launch(const CubineryConv* conv, void* stream,
                                        const CubineryConvArgs* args);
/* What a launch of so many sequences with so many tokens in all and so many channels runs, and why,
 * as cubinery_decode_choice().  With split_qkv the problem says how many channels there are. */
CUBINERY_C_API int cubinery_conv_choice(const CubineryConv* conv, int64_t sequences, int64_t tokens,
                                        int64_t channels, char** choice);

/* ---- Tuning (cubinery/tuning.h) ---------------------------------------------------------------
 * Of the library's operators; kernels of one's own are tuned in C++ (cubinery::Tunable).  Operators
 * take results by themselves when they are created. */

/* Where cubinery_tune() is, after every step: {"op", "bucket", "shapes_done", "shapes", "measured",
 * "candidates", "best", "best_ms", "default_ms", "what"}, cubinery::TuneProgress, valid during the
 * call.  Called from the thread that called cubinery_tune(); must not call the library.  Any other
 * value than 0 ends the tuning after the measurement that is running. */
typedef int (*CubineryTuneProgress)(const char* progress, void* user);

/* Measures which kernels of a problem are fastest for some shapes, and writes it down.  Slow; needs
 * the GPU for itself.  Continues where an earlier call stopped.
 * shapes: a JSON array of {"batch"} (gdn_decode, gdn_commit), {"tokens", "sequences", and
 * optionally "max_seqlen"} (gdn_prefill), {"batch", "tokens_each"} (gdn_verify) or {"tokens",
 * "sequences", and without split_qkv "channels"} (gdn_conv).
 * settings: JSON with any of {"budget_ms", "exhaustive_up_to", "seed", "compile_threads",
 * "directory", "again"}, cubinery::TuneSettings; NULL: all at their default.
 * progress: may be NULL.
 * *summary: {"shapes": [{"shape", "bucket", "complete", "why", "chosen", "default", "chosen_ms",
 * "default_ms", "margin", "uncertainty"}], "measured", "reused", "rejected", "stopped",
 * "directory"}, times as {"median", "p10", "p90", "samples"}; may be NULL.
 * CUBINERY_UNSUPPORTED: the context has no device, or no NVRTC.  CUBINERY_IO: the directory cannot
 * be written. */
CUBINERY_C_API int cubinery_tune(const CubineryContext* context, const char* op,
                                 const char* problem, const char* shapes, const char* settings,
                                 CubineryTuneProgress progress, void* user, char** summary);

/* What a directory of results ("directory" of the summary above) holds.
 * request: JSON with any of {"format": "table" | "json" | "t4" | "kernel-tuner", "op", "bucket",
 * "setting", "copy_rate"}, cubinery::ReportRequest; NULL: a table of everything.
 * *report: for cubinery_free_text().
 * CUBINERY_INVALID_ARGUMENT: no setting fits the request, or several where the format describes
 * one.  CUBINERY_IO: the directory or a file cannot be read. */
CUBINERY_C_API int cubinery_tuning_report(const char* directory, const char* request,
                                          char** report);

#ifdef __cplusplus
}
#endif

#endif /* CUBINERY_C_API_H_ */
