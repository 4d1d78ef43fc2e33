// How the score update is cut: what kernel and launcher must agree on.
#pragma once

namespace kvproof::gpu {

constexpr int score_update_threads = 128;
constexpr int score_update_thread_tokens = 4;  // whole 16-byte vectors at any GQA ratio
constexpr int score_update_cta_tokens = score_update_threads * score_update_thread_tokens;

}  // namespace kvproof::gpu
