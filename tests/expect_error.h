// EXPECT_INPUT_ERROR(statement, text): the statement throws gluon::InputError whose message holds the text.

#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gluon/core/check.h"

#define EXPECT_INPUT_ERROR(statement, text)                                                        \
  try {                                                                                            \
    statement;                                                                                     \
    ADD_FAILURE() << "expected an InputError with '" << (text) << "', nothing was thrown";         \
  } catch (const ::gluon::InputError& error) {                                                     \
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << "got: " << error.what(); \
  }
