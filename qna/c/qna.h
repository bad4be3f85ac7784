/* QnA networks from C: open a weights file, ask it about images. Library libqna, see docs/c.md.
 *
 *   qna_model* model = NULL;
 *   qna_class best[5];
 *   size_t count = 0;
 *   if (qna_open("classifier.safetensors", &model) != QNA_OK ||
 *       qna_predict_file(model, "picture.jpg", 5, best, &count) != QNA_OK) {
 *     fprintf(stderr, "%s\n", qna_last_error());
 *   }
 *   qna_close(model);
 *
 * An opened model does not change: any number of threads may use one at the same time. Images are
 * resized, cropped and normalised as the weights file says. Texts are UTF-8. Nothing is printed.
 */
#ifndef QNA_C_QNA_H_
#define QNA_C_QNA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What every function returns that can fail. Results are only written where it is QNA_OK. */
typedef enum qna_status {
  QNA_OK = 0,
  QNA_ERROR_ARGUMENT = 1, /* a wrong argument: a null pointer, a size, a number out of its range */
  QNA_ERROR_MODEL = 2,    /* the weights file cannot be read, or is broken */
  QNA_ERROR_IMAGE = 3,    /* the image cannot be read, or is broken */
  QNA_ERROR_KIND = 4,     /* this kind of network cannot do that */
  QNA_ERROR_MEMORY = 5,   /* not enough memory */
  QNA_ERROR_INTERNAL = 6  /* anything else */
} qna_status;

/* What the last call of this thread that failed says of it, for people. Never NULL; valid until the
 * next call that fails in this thread. */
const char* qna_last_error(void);

/* The library's version, "0.1.0". */
const char* qna_version(void);

typedef struct qna_model qna_model;

typedef enum qna_kind { QNA_CLASSIFIER = 0, QNA_DETECTOR = 1, QNA_AUTO_ENCODER = 2 } qna_kind;

/* Open a weights file, or one that lies in memory (it is copied). */
qna_status qna_open(const char* path, qna_model** model);
qna_status qna_open_memory(const void* bytes, size_t size, qna_model** model);

/* How the weights are kept in memory. QNA_BFLOAT16 takes half of it and rounds them to 8 bits of
 * precision; arithmetic stays in 32 bits. docs/engine.md says what that costs. qna_open and
 * qna_open_memory keep them as QNA_FLOAT32. weight_type: one of these. */
typedef enum qna_weight_type { QNA_FLOAT32 = 0, QNA_BFLOAT16 = 1 } qna_weight_type;
qna_status qna_open_as(const char* path, int weight_type, qna_model** model);
qna_status qna_open_memory_as(const void* bytes, size_t size, int weight_type, qna_model** model);

/* Gives everything back. No other thread may be using the model. NULL is allowed. */
void qna_close(qna_model* model);

/* How many threads compute one call, the calling one among them; 0, the default: one per core. A
 * program with as many threads as cores, each with its own images, is fastest with 1. The results
 * are the same to the last bit. */
qna_status qna_set_threads(qna_model* model, int threads);

/* What a model is. The texts live as long as the model. */
typedef struct qna_description {
  qna_kind kind;
  const char* name; /* may be empty */
  int64_t classes;  /* 0: it knows none */
  int64_t channels; /* of its images: 3, or 1 for grey ones; the library converts */
  int64_t height;   /* of what the network sees; 0: as the image, resized */
  int64_t width;
  int64_t features;   /* of a classifier: numbers per image, see qna_features_pixels */
  int64_t queries;    /* of a detector: no image has more boxes than these */
  const char* config; /* the whole configuration, as JSON */
} qna_description;
qna_status qna_describe(const qna_model* model, qna_description* description);

/* The name of a class, from 0 on. NULL where there is none, or where the file has no names. */
const char* qna_label(const qna_model* model, int64_t index);

/* An image: rows from top to bottom, pixels from left to right, red, green and blue side by side.
 */
typedef struct qna_pixels {
  const uint8_t* rgb;
  int64_t height;
  int64_t width;
  int64_t stride; /* bytes from a row to the next; 0: 3 * width */
} qna_pixels;

/* ---- classifiers ---- */

typedef struct qna_class {
  int64_t index;
  double probability;
} qna_class;

/* The `capacity` most probable classes, the best first. *count: how many there are, which is less
 * where the model has fewer classes. Files are JPEG, PNG or WebP. */
qna_status qna_predict_pixels(const qna_model* model, const qna_pixels* pixels, size_t capacity,
                              qna_class* best, size_t* count);
qna_status qna_predict_file(const qna_model* model, const char* path, size_t capacity,
                            qna_class* best, size_t* count);
qna_status qna_predict_memory(const qna_model* model, const void* bytes, size_t size,
                              size_t capacity, qna_class* best, size_t* count);

/* What the last product is taken of: `features` numbers of qna_description. capacity: of `values`,
 * at least that. */
qna_status qna_features_pixels(const qna_model* model, const qna_pixels* pixels, size_t capacity,
                               float* values);
qna_status qna_features_file(const qna_model* model, const char* path, size_t capacity,
                             float* values);
qna_status qna_features_memory(const qna_model* model, const void* bytes, size_t size,
                               size_t capacity, float* values);

/* What the probabilities are made of, for a batch of images that are resized and normalised
 * already: pixels [batch, height, width, channels], logits [batch, classes]. capacity: of `logits`,
 * at least batch * classes. */
qna_status qna_logits(const qna_model* model, const float* pixels, int64_t batch, int64_t height,
                      int64_t width, size_t capacity, float* logits);

/* ---- detectors ---- */

typedef struct qna_box {
  double left; /* in pixels of the image */
  double top;
  double right;
  double bottom;
  double score;  /* a probability */
  int64_t index; /* of the class */
} qna_box;

/* The `capacity` best objects whose score is at least `threshold` (0 to 1), the best first. *count:
 * how many there are. */
qna_status qna_detect_pixels(const qna_model* model, const qna_pixels* pixels, double threshold,
                             size_t capacity, qna_box* boxes, size_t* count);
qna_status qna_detect_file(const qna_model* model, const char* path, double threshold,
                           size_t capacity, qna_box* boxes, size_t* count);
qna_status qna_detect_memory(const qna_model* model, const void* bytes, size_t size,
                             double threshold, size_t capacity, qna_box* boxes, size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* QNA_C_QNA_H_ */
