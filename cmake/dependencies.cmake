# What Gluon builds on; docs/design.md gives the reason for each.

# LibTorch from the python package, when there is one and nobody said where to look.
if((GLUON_CUDA OR GLUON_PYTHON) AND NOT CMAKE_PREFIX_PATH)
  find_package(Python 3.8 REQUIRED COMPONENTS Interpreter)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path)"
                  OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
endif()

# Kernels for Hopper: built where nvcc 12.3 or later is; without it the library says that it has none.
find_program(GLUON_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
set(GLUON_KERNELS OFF)
if(GLUON_NVCC AND NOT GLUON_SANITIZE)
  execute_process(COMMAND ${GLUON_NVCC} --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" nvcc_release "${nvcc_says}")
  if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.3)
    set(GLUON_KERNELS ON)
  else()
    message(STATUS "No CUDA kernels: ${GLUON_NVCC} is '${nvcc_release}', they need 12.3 or later")
  endif()
endif()
if(GLUON_KERNELS)
  set(CMAKE_CUDA_COMPILER ${GLUON_NVCC} CACHE FILEPATH "nvcc")
  set(CMAKE_CUDA_ARCHITECTURES 90a)
  set(TORCH_CUDA_ARCH_LIST 9.0a)  # LibTorch's own CMake files would add every architecture it was built for
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc speaks C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
endif()

find_package(Torch 1.13 REQUIRED)
if(GLUON_CUDA AND NOT TORCH_CUDA_LIBRARIES)
  message(FATAL_ERROR "GLUON_CUDA is ON, but the LibTorch at ${TORCH_INSTALL_PREFIX} has no CUDA")
endif()

# The fast path on the CPU calls BLAS itself (symmetric products); cblas.h and OpenBLAS's thread control.
find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-openmp openblas-pthread REQUIRED)
find_library(OPENBLAS_LIBRARY openblas REQUIRED)
# at::parallel_for is inline: without OpenMP here it would run on one thread.
find_package(OpenMP REQUIRED COMPONENTS CXX)

# Checkpoints: JSON headers and CRC-32.
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)

if(GLUON_PROGRAM)
  find_package(CLI11 REQUIRED)
  # Optional: reading .xz files, and the GPT-2 tokenizer. Without them the program says so when asked.
  find_package(LibLZMA)
  find_package(PkgConfig)
  if(PkgConfig_FOUND)
    pkg_check_modules(PCRE2 IMPORTED_TARGET libpcre2-8)
  endif()
endif()
if(GLUON_TESTS)
  find_package(GTest REQUIRED)
endif()
