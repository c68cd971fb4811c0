# What Gluon builds on; docs/design.md gives the reason for each.

# The torch of the Python package: the extension has to share its LibTorch, and a build with CUDA takes it, too.
set(GLUON_PYTHON_ABSENT "")  # why the Python package is left out
if(GLUON_CUDA OR GLUON_PYTHON)
  find_package(Python 3.8 COMPONENTS Interpreter)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
                  "import torch; print(torch.__version__, torch.__path__[0], torch.utils.cmake_prefix_path, sep=';')"
                  OUTPUT_VARIABLE python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    list(GET python_torch 0 GLUON_PYTHON_TORCH_VERSION)
    list(GET python_torch 1 GLUON_PYTHON_TORCH)
    if(NOT CMAKE_PREFIX_PATH)
      list(GET python_torch 2 CMAKE_PREFIX_PATH)
    endif()
  elseif(GLUON_PYTHON STREQUAL "AUTO")
    set(GLUON_PYTHON_ABSENT "${Python_EXECUTABLE} has no torch (Debian: python3-torch)")
    message(WARNING "The Python package is not built and its tests are skipped: ${GLUON_PYTHON_ABSENT}")
  elseif(GLUON_PYTHON)
    message(FATAL_ERROR "GLUON_PYTHON is ON, but ${Python_EXECUTABLE} has no torch; install it, "
                        "say -DPython_EXECUTABLE=..., or, where pip hides it, pip install --no-build-isolation")
  elseif(NOT CMAKE_PREFIX_PATH)
    message(FATAL_ERROR "GLUON_CUDA is ON, but ${Python_EXECUTABLE} has no torch, "
                        "and CMAKE_PREFIX_PATH names no LibTorch")
  endif()
endif()

# Kernels for GPUs: built where nvcc 12.3 or later is; without it the library says that it has none.
find_program(GLUON_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
set(GLUON_KERNELS OFF)
if(GLUON_NVCC AND NOT GLUON_SANITIZE AND NOT GLUON_FUZZ)
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
if(GLUON_PYTHON AND TORCH_CUDA_LIBRARIES)
  set(GLUON_CUDA ON)  # nobody has to know that the package needs a flag for what its torch has
endif()
if(GLUON_CUDA AND NOT TORCH_CUDA_LIBRARIES)
  message(FATAL_ERROR "GLUON_CUDA is ON, but the LibTorch at ${TORCH_INSTALL_PREFIX} has no CUDA")
endif()

# Training on several ranks: LibTorch's process groups over Gloo and NCCL, each where LibTorch has it and the headers are
# there. They must be those LibTorch was built with: Gloo's lie beside LibTorch's, NCCL's in a package of their own.
function(gluon_torch_has result target definition)
  set(${result} OFF PARENT_SCOPE)
  if(TARGET ${target})
    get_target_property(definitions ${target} INTERFACE_COMPILE_DEFINITIONS)
    if("${definition}" IN_LIST definitions)
      set(${result} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()
gluon_torch_has(GLUON_GLOO torch_cpu USE_C10D_GLOO)
find_path(GLOO_INCLUDE_DIR gloo/config.h PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH)
if(NOT GLOO_INCLUDE_DIR)
  set(GLUON_GLOO OFF)
endif()
gluon_torch_has(GLUON_NCCL torch_cuda USE_C10D_NCCL)
if(GLUON_NCCL)
  file(GLOB packages ${TORCH_INSTALL_PREFIX}/../nvidia/nccl ${TORCH_INSTALL_PREFIX}/../nvidia/cu*)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${TORCH_INCLUDE_DIRS} ${packages} PATH_SUFFIXES include)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${packages} PATH_SUFFIXES lib)
  if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
    message(STATUS "No NCCL: LibTorch has it, but nccl.h or libnccl is missing (-DNCCL_INCLUDE_DIR=, -DNCCL_LIBRARY=)")
    set(GLUON_NCCL OFF)
  endif()
endif()
set(GLUON_RANKS OFF)
if(GLUON_GLOO OR GLUON_NCCL)
  set(GLUON_RANKS ON)
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
  # Optional: reading .xz files and the GPT-2 tokenizer. Without them the program says so when asked.
  find_package(LibLZMA)
  find_package(PkgConfig)
  if(PkgConfig_FOUND)
    pkg_check_modules(PCRE2 IMPORTED_TARGET libpcre2-8)
  endif()
endif()
if(GLUON_TESTS)
  find_package(GTest REQUIRED)
endif()

# gluon_cuda_objects(NAME FOLDER): the CUDA sources of a folder, where nvcc is. They know no torch: they compile also
# beside a LibTorch without CUDA.
function(gluon_cuda_objects name folder)
  if(GLUON_KERNELS)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cu)
    add_library(${name} OBJECT ${sources})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES 90a)
  endif()
endfunction()
set(GLUON_TORCH_KERNELS OFF)
if(GLUON_KERNELS AND GLUON_CUDA)
  set(GLUON_TORCH_KERNELS ON)
  # Products on GPUs other than Hopper's: the cuBLAS that LibTorch itself loads, or else the toolkit's.
  find_package(CUDAToolkit REQUIRED)
  file(GLOB packages ${TORCH_INSTALL_PREFIX}/../nvidia/cublas ${TORCH_INSTALL_PREFIX}/../nvidia/cu*)
  find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 NAMES_PER_DIR
    HINTS ${packages} PATH_SUFFIXES lib PATHS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
endif()

# gluon_any_gpu(SOURCE...): plain CUDA of a gluon_cuda_objects() target in the same folder. Beside the code for Hopper it
# gets that for compute capability 8.0, which runs on 8.x, and PTX, which drivers compile for later ones.
function(gluon_any_gpu)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_OPTIONS "--generate-code=arch=compute_80,code=[compute_80,sm_80]")
endfunction()

# gluon_choose(VARIABLE FOUND ABSENT SOURCE...): appends the sources where FOUND is true, and otherwise ABSENT, a file
# that says what is missing.
function(gluon_choose variable found absent)
  if(${found})
    list(APPEND ${variable} ${ARGN})
  else()
    list(APPEND ${variable} ${absent})
  endif()
  set(${variable} ${${variable}} PARENT_SCOPE)
endfunction()
