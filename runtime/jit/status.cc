#include "cubinery/status.h"

namespace cubinery {

const char* to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "Ok";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kInvalidKey:
      return "InvalidKey";
    case Code::kCompileFailed:
      return "CompileFailed";
    case Code::kNotCached:
      return "NotCached";
    case Code::kUnsupported:
      return "Unsupported";
    case Code::kDriver:
      return "Driver";
    case Code::kIo:
      return "Io";
  }
  return "?";
}

Status Status::copy() const { return {error_->code, error_->message, error_->log}; }

}  // namespace cubinery
