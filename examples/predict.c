/* What is in a picture, from C: prints the five most probable classes.
 *
 *   cc predict.c -o predict -I PREFIX/include -L PREFIX/lib -lqna -Wl,-rpath,PREFIX/lib
 *   ./predict PREFIX/share/qna/classifier.safetensors picture.jpg
 */
#include <qna/c/qna.h>
#include <stdio.h>

int main(int argc, char** argv) {
  qna_model* model = NULL;
  qna_class best[5];
  size_t count = 0;
  size_t i;
  if (argc != 3) {
    fprintf(stderr, "usage: %s WEIGHTS PICTURE\n", argv[0]);
    return 2;
  }
  if (qna_open(argv[1], &model) != QNA_OK ||
      qna_predict_file(model, argv[2], 5, best, &count) != QNA_OK) {
    fprintf(stderr, "%s\n", qna_last_error());
    qna_close(model);
    return 1;
  }
  for (i = 0; i < count; ++i) {
    const char* label = qna_label(model, best[i].index);
    printf("%7.2f %%  %s\n", 100 * best[i].probability, label == NULL ? "?" : label);
  }
  qna_close(model);
  return 0;
}
