#include <algorithm>
#include <array>

#include "gluon/core/check.h"
#include "lab/report/page.h"
#include "lab/report/watch_request.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

namespace {

const std::string kToken = "a-token-of-22-letters.";

// A program without the page has no answers.
bool has_page() {
  try {
    return !gluon::lab::page_template().empty();
  } catch (const gluon::InputError&) {
    return false;
  }
}

// An InputError in here would not be the request's.
gluon::lab::WatchAnswers* make_answers(const gluon::fuzz::Scratch& scratch, const std::string& token) noexcept {
  scratch.write("config.toml", "steps=2\n");
  scratch.write("log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n2,16,4,4.1,2\n");
  return new gluon::lab::WatchAnswers({scratch.folder()}, {}, token);
}

}  // namespace

// The bytes of a connection: every request has an answer, and only those that may have it get the data.
void gluon::fuzz::watch(std::string_view bytes) {
  static const bool page = has_page();
  if (!page) return;
  static const Scratch scratch("watch");
  static lab::WatchAnswers* const open = make_answers(scratch, "");
  static lab::WatchAnswers* const guarded = make_answers(scratch, kToken);
  std::optional<lab::WatchRequest> request;
  try {
    request = lab::read_request(bytes);
  } catch (const lab::BadRequest& bad) {
    require(bad.status == 400 || bad.status == 431 || bad.status == 505);
    return;
  }
  if (!request) return;
  constexpr std::array kStatus = {200, 202, 304, 401, 403, 404, 405};
  for (lab::WatchAnswers* answers : {open, guarded}) {
    const lab::WatchAnswer answer = answers->answer(*request);
    require(std::find(kStatus.begin(), kStatus.end(), answer.status) != kStatus.end() && answer.body != nullptr);
    if (answer.status != 200) continue;
    require(request->method == "GET" || request->method == "HEAD");
    require(request->path == "/" || request->path == "/data.json");
    require(answers == open || request->token == kToken);
  }
}
