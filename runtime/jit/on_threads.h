// The same work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace cubinery {

// Calls work(0) to work(count - 1), each once, on the calling thread and on up to threads - 1 more,
// which end before the call does.  Where there are no more threads to be had, fewer do the work.
void on_threads(std::size_t count, std::size_t threads,
                const std::function<void(std::size_t)>& work);

// Calls it on a thread that has a stack as compilers take for granted, whatever the calling thread
// has, and returns when it has returned; on the calling thread where there is no other to be had.
void on_large_stack(const std::function<void()>& work);

}  // namespace cubinery
