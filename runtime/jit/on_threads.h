// The same work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace cubinery {

// Calls work(0) to work(count - 1), each once, on the calling thread and on up to threads - 1 more,
// which end before the call does.  Where there are no more threads to be had, fewer do the work.
void on_threads(std::size_t count, std::size_t threads,
                const std::function<void(std::size_t)>& work);

}  // namespace cubinery
