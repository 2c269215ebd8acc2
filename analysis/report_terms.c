#include "analysis/report_terms.h"

#include <stddef.h>

/* Texts are HTML. */
static const struct {
    const char *term, *text;
} terms[] = {
    {"full model", "The frozen pretrained model with its own softmax attention (rule <code>softmax</code>). "
                   "No weight of it "
                   "is changed by anything here."},
    {"exact set",
     "The tokens whose keys and values are kept as they are, with softmax over them: the first (sinks), the "
     "last (window) and, where there is a cache, routed ones. &ldquo;8 + 56&rdquo;: 8 sinks, a window of "
     "56."},
    {"linear part",
     "What takes up the tokens that leave the exact set: a state of fixed size that the rule (kda, gla, "
     "&hellip;) updates and reads."},
    {"linear off", "The same run with its linear part left out: softmax over the exact set alone (rule "
                   "<code>none</code>). A "
                   "rule that does not beat it is not worth its state."},
    {"tier", "<i>untrained</i>: mechanism parameters as published or given; <i>calibrated</i>: fitted layer "
             "by layer to "
             "the frozen attention; <i>trained</i>: fitted by next-token loss. The backbone stays frozen in "
             "all three."},
    {"nMSE",
     "Error of an attention block, given the frozen model's own inputs (teacher forced) and taken after the "
     "output projection: mean squared error over all tokens and channels, divided by the variance of the "
     "frozen block's output. Tables have the mean over layers. 0 is exact; 1 is no better than its mean."},
    {"propagated nMSE", "The same when linearised layers feed each other, as they do in use."},
    {"perplexity",
     "exp of the mean negative log-likelihood of the next token over the whole evaluation text, end to end."},
    {"KL",
     "KL divergence of the run's next-token distribution from the full model's, nats, mean over tokens."},
    {"agreement", "Share of tokens at which run and full model name the same next token first."},
    {"state, exact, both", "Bytes that one sequence holds at its end, over all layers and heads: linear "
                           "state; exactly kept keys and "
                           "values; their sum."},
    {"at equal bytes",
     "A run is compared with every run on the same model and text that holds no more (2 % allowed). Equal "
     "numbers of tokens are not equal bytes: the state counts too."},
    {"reached the state",
     "Share of scored tokens whose context was longer than the exact set. At 0 % the linear part was not "
     "tested."},
    {"95 % interval", "Expanded percentile bootstrap over the distinct sequences of the text, 10,000 "
                      "resamples. Of a difference "
                      "it is paired: the same sequences on both sides. Fewer than 5 sequences give none."},
    {"sure, cannot be told", "A difference is called sure when its paired 95 % interval leaves 0 out (for "
                             "items of tasks: and McNemar's "
                             "p is below 0.05). Otherwise, or without an interval, it cannot be told. The "
                             "best of many is the luckiest "
                             "too: p is not corrected for the number of comparisons."},
    {"&plusmn;",
     "Standard error over items (tasks), or standard deviation over seeds where a row says how many seeds."},
    {"McNemar p",
     "Exact two-sided test of paired items: of those on which only one side is right, as likely either way?"},
    {"diverged", "Some figure of the run is not finite. That is a result, not a fault of the file."},
    {"key concentration", "Cosine of a unit key with the mean of the unit keys so far; the projection "
                          "residual is the mean squared "
                          "distance of the past keys, projected on that mean, from it."},
};

void fl_report_terms_write(FILE *stream) {
    fputs("<h2 id=\"definitions\">Definitions</h2>\n<dl>\n", stream);
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++)
        fprintf(stream, "<dt>%s</dt><dd>%s</dd>\n", terms[i].term, terms[i].text);
    fputs("</dl>\n", stream);
}
