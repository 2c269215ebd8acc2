/* Samples files: texts and hashes are those that lm-evaluation-harness itself writes for the same rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"
#include "tests/support/sweep_fixture.h"

/* Rows as the data sets of the Hub have them, with what JSON has to escape. */
static void write_data(void) {
    fl_write_text(
        fl_inside("arc.jsonl"),
        "{\"id\": \"a1\", \"question\": \"Which \\\"one\\\" is it, \xC3\xA9?\", \"choices\": "
        "{\"text\": [\"a\\tb\", \"c\", \"d e\"], \"label\": [\"A\", \"B\", \"C\"]}, \"answerKey\": \"B\"}\n"
        "{\"id\": \"a2\", \"question\": \"And\\nhere?\", \"choices\": {\"text\": [\"x\", \"yy\"], "
        "\"label\": [\"1\", \"2\"]}, \"answerKey\": \"2\"}\n"
        "{\"id\": \"a3\", \"question\": \"Third\", \"choices\": {\"text\": [\"p\", \"q\", \"r\", \"s\"], "
        "\"label\": [\"A\", \"B\", \"C\", \"D\"]}, \"answerKey\": \"A\"}\n");
    fl_write_text(fl_inside("piqa.jsonl"),
                  "{\"goal\": \"Eat\", \"sol1\": \"cook\", \"sol2\": \"starve\", \"label\": 0}\n"
                  "{\"goal\": \"Go\", \"sol1\": \"sit\", \"sol2\": \"walk\", \"label\": 1}\n");
    fl_write_text(fl_inside("winogrande.jsonl"),
                  "{\"sentence\": \"Ann saw Eve but _ left.\", \"option1\": \"Ann\", \"option2\": \"Eve\", "
                  "\"answer\": \"2\"}\n");
    fl_write_text(fl_inside("lambada.jsonl"), "{\"text\": \"the last word of all is stone\"}\n"
                                              "{\"text\": \"he said \\\"no\\\" and then left\"}\n");
    fl_write_text(fl_inside("wikitext.jsonl"), "{\"page\": \" = Page = \\n Some words , of it .\"}\n");
    fl_write_text(
        fl_inside("hellaswag.jsonl"),
        "{\"ind\": 24, \"activity_label\": \"Roof\", \"ctx_a\": \"A man sits.\", \"ctx_b\": \"he\", "
        "\"ctx\": \"A man sits. he\", \"endings\": [\"is [title] up.\", \"goes.\", \"sings\", \"x\"], "
        "\"label\": \"3\"}\n");
    assert_int_equal(fl_shell(NULL, "mkdir -p %s/test %s/dev", fl_inside("mmlu"), fl_inside("mmlu")), 0);
    fl_write_text(fl_inside("mmlu/test/anatomy_test.csv"),
                  "\"What, now?\",one,two,three,four,C\nHow?,1,2,3,4,A\n");
    fl_write_text(fl_inside("mmlu/dev/anatomy_dev.csv"), "Shot?,s1,s2,s3,s4,D\nOther?,t1,t2,t3,t4,B\n");
}

static void run_tasks(const char *test) {
    const char *model = fl_write_byte_model(test, fl_test_folder()), *data = fl_test_folder();
    write_data();
    fl_write_text(
        fl_inside("tasks.yaml"),
        "name: texts\nmodel: {path: %s}\nvariant: {rule: none, window: 8}\ntasks:\n"
        "  - {name: arc_easy, path: %s/arc.jsonl, shots: 1}\n  - {name: piqa, path: %s/piqa.jsonl}\n"
        "  - {name: winogrande, path: %s/winogrande.jsonl}\n"
        "  - {name: lambada_openai, path: %s/lambada.jsonl, bootstrap: 10}\n"
        "  - {name: wikitext, path: %s/wikitext.jsonl, prefix_token: 10}\n"
        "  - {name: hellaswag, path: %s/hellaswag.jsonl}\n"
        "  - {name: mmlu, path: %s/mmlu, shots: 2}\n"
        "  - {name: multiple_choice, label: own, path: %s/own.jsonl}\n",
        model, data, data, data, data, data, data, data, data);
    fl_write_text(fl_inside("own.jsonl"),
                  "{\"question\": \"Q\", \"choices\": [\"a\", \"b\"], \"answer\": 1}\n");
    char *output = NULL;
    int code =
        fl_frostline(&output, "run %s --out %s --threads 1", fl_inside("tasks.yaml"), fl_inside("out"));
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);
}

static void run_and_export(const char *test) {
    char arguments[2048];
    run_tasks(test);
    snprintf(arguments, sizeof arguments, "export %s --lm-eval %s", fl_inside("out"), fl_inside("lm"));
    fl_expect(0, arguments, "1 runs written", NULL);
}

static void run_python(const char *python, const char *script) {
    char *output = NULL;
    fl_write_file(fl_inside("script.py"), script, strlen(script));
    int code = fl_shell(&output, "cd %s && HF_HUB_OFFLINE=1 %s script.py 2>&1", fl_test_folder(), python);
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);
}

static void test_texts_and_hashes_follow_the_stated_rules(void **state) {
    (void)state;
    const char *python = fl_python_with(__func__, "json,hashlib");
    run_and_export(__func__);
    run_python(
        python,
        "import json, glob, hashlib\n"
        "h = lambda text: hashlib.sha256(text.encode()).hexdigest()\n"
        "rows = {}\n"
        "for path in glob.glob('lm/*/samples_*'):\n"
        "    name = path.split('samples_')[1].rsplit('_', 1)[0]\n"
        "    rows[name] = [json.loads(line) for line in open(path)]\n"
        "assert set(rows) == {'arc_easy', 'piqa', 'winogrande', 'lambada_openai', 'wikitext', 'hellaswag', "
        "'mmlu', "
        "'own'}, rows\n"
        "for name, items in rows.items():\n"
        "    for s in items:\n"
        "        assert s['doc_hash'] == h(json.dumps(s['doc'], indent=2, ensure_ascii=False)), (name, s)\n"
        "        assert s['prompt_hash'] == h(s['arguments']['gen_args_0']['arg_0'])\n"
        "        assert s['target_hash'] == h(s['target']) and len(s['frostline_document_hash']) == 32\n"
        "        assert len(s['resps']) == len(s['filtered_resps']) == len(s['arguments'])\n"
        "        if name != 'wikitext':\n"
        "            assert all(r[1] in ('True', 'False') for r in s['filtered_resps']), s\n"
        "mmlu = rows['mmlu'][0]\n"
        "assert mmlu['doc'] == {'question': 'What, now?', 'subject': 'anatomy', 'choices': ['one', 'two', "
        "'three', "
        "'four'], 'answer': 2} and mmlu['target'] == '2'\n"
        "context = mmlu['arguments']['gen_args_3']['arg_0']\n"
        "assert context.startswith('The following are multiple choice questions (with answers) about "
        "anatomy.') and "
        "'Shot?' in context and context.endswith('D. four\\nAnswer:')\n"
        "assert mmlu['arguments']['gen_args_3']['arg_1'] == ' D'\n"
        "assert rows['winogrande'][0]['target'] == 'left.'\n"
        "assert rows['lambada_openai'][1]['target'] == ' left'\n"
        "assert rows['lambada_openai'][1]['metrics'] == ['acc', 'perplexity']\n"
        "page = rows['wikitext'][0]\n"
        "assert page['target'] == page['arguments']['gen_args_0']['arg_0'] and 'words, of it' in "
        "page['target']\n"
        "assert list(rows['hellaswag'][0]['doc'])[-3:] == ['query', 'choices', 'gold']\n");
}

static void test_data_that_changed_or_went_leave_null_and_a_note(void **state) {
    (void)state;
    const char *python = fl_python_with(__func__, "json,glob");
    run_tasks(__func__);
    fl_write_text(fl_inside("piqa.jsonl"),
                  "{\"goal\": \"x\", \"sol1\": \"y\", \"sol2\": \"z\", \"label\": 0}\n");
    assert_int_equal(fl_shell(NULL, "rm %s", fl_inside("arc.jsonl")), 0);
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "export %s --lm-eval %s", fl_inside("out"), fl_inside("lm"));
    fl_expect(0, arguments, "task piqa without texts", "has changed since the run",
              "task arc_easy without texts", NULL);
    run_python(python, "import json, glob\n"
                       "path, = glob.glob('lm/*/samples_piqa_*')\n"
                       "s = json.loads(open(path).readline())\n"
                       "assert s['doc_hash'] is None and s['prompt_hash'] is None and s['target'] == '0'\n"
                       "assert s['arguments']['gen_args_0'] == {'arg_0': None, 'arg_1': None}\n"
                       "path, = glob.glob('lm/*/samples_lambada_openai_*')\n"
                       "assert json.loads(open(path).readline())['doc']['text'].endswith('stone')\n");
}

/* The harness's own task files over the same rows, with its model that answers at random. */
static void test_samples_are_those_of_lm_evaluation_harness(void **state) {
    (void)state;
    const char *python = fl_python_with(__func__, "lm_eval,datasets");
    run_and_export(__func__);
    run_python(
        python,
        "import json, glob, os, yaml, lm_eval, sys\n"
        "from lm_eval import utils\n"
        "from lm_eval.api.task import ConfigurableTask\n"
        "base = os.path.join(os.path.dirname(lm_eval.__file__), 'tasks')\n"
        "tasks = {'arc_easy': ('arc/arc_easy.yaml', 'arc', 1), 'piqa': ('piqa/piqa.yaml', 'piqa', 0),\n"
        "         'winogrande': ('winogrande/default.yaml', 'winogrande', 0),\n"
        "         'lambada_openai': ('lambada/lambada_openai.yaml', 'lambada', 0),\n"
        "         'wikitext': ('wikitext/wikitext.yaml', 'wikitext', 0),\n"
        "         'hellaswag': ('hellaswag/hellaswag.yaml', 'hellaswag', 0)}\n"
        "compared = 0\n"
        "for name, (file, data, shots) in tasks.items():\n"
        "    try:\n"
        "        from lm_eval.utils import load_yaml_config\n"
        "        config = load_yaml_config(os.path.join(base, file))\n"
        "    except ImportError:\n"
        "        from lm_eval.tasks._yaml_loader import load_yaml\n"
        "        config = load_yaml(os.path.join(base, file))\n"
        "    for key in ('training_split', 'validation_split', 'tag', 'include'):\n"
        "        config.pop(key, None)\n"
        "    config.update(task=name, dataset_path='json', dataset_name=None, test_split='test', "
        "num_fewshot=shots,\n"
        "                  dataset_kwargs={'data_files': {'test': os.path.abspath(data + '.jsonl')}})\n"
        "    task = ConfigurableTask(config=config)\n"
        "    task.set_fewshot_seed(1234)\n"
        "    theirs = lm_eval.evaluate(lm=lm_eval.api.registry.get_model('dummy')(), task_dict={name: "
        "task},\n"
        "                              log_samples=True, bootstrap_iters=0)['samples'][name]\n"
        "    path, = glob.glob('lm/*/samples_%s_*' % name)\n"
        "    ours = [json.loads(line) for line in open(path)]\n"
        "    assert len(ours) == len(theirs), name\n"
        "    for a, b in zip(ours, sorted(theirs, key=lambda s: s['doc_id'])):\n"
        "        sent = {'gen_args_%d' % i: {'arg_%d' % j: x for j, x in enumerate(t)} for i, t in "
        "enumerate(b['arguments'])}\n"
        "        for key, value in (('doc_id', b['doc_id']), ('doc', b['doc']), ('target', "
        "str(b['target'])),\n"
        "                           ('arguments', sent), ('doc_hash', b['doc_hash']), ('prompt_hash', "
        "b['prompt_hash']),\n"
        "                           ('target_hash', b['target_hash']), ('filter', b['filter'])):\n"
        "            assert a[key] == value, (name, key, a[key], value)\n"
        "        assert set(b['metrics']) <= set(a['metrics']), (name, a['metrics'], b['metrics'])\n"
        "        assert len(a['resps']) == len(b['resps'])\n"
        "        compared += 1\n"
        "assert compared == 10, compared\n");
}

/* Its run_id is x/../../../../../escaped/y. */
static void test_a_run_id_from_a_file_does_not_leave_the_folder(void **state) {
    (void)state;
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "export tests/fixtures/run_files/traversal.h5 --lm-eval %s",
             fl_inside("a/b/c"));
    fl_expect(0, arguments, "1 runs written", NULL);
    assert_int_equal(fl_shell(NULL, "test ! -e %s", fl_inside("escaped")), 0);
    assert_int_equal(fl_shell(NULL, "ls %s/*/results_*.json", fl_inside("a/b/c")), 0);
}

/* External storage, an empty array beside full ones. */
static void test_strangers_files_are_reported_without_what_they_point_at(void **state) {
    (void)state;
    static const char *const names[] = {"read-passwd", "overread"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char arguments[2048];
        snprintf(arguments, sizeof arguments, "report tests/fixtures/run_files/%s.h5 --out %s", names[i],
                 fl_inside("page.html"));
        fl_expect(0, arguments, "page.html", NULL);
        assert_int_equal(fl_shell(NULL, "! grep -q root:x: %s", fl_inside("page.html")), 0);
    }
}

/* 2^31 values in 8 kB: what cannot be read is no NaN in a table. */
static void test_a_dataset_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    static const char *const commands[] = {"table", "compare", "plot", "report", "export --summary"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char arguments[2048];
        const char *run = "tests/fixtures/run_files/huge.h5";
        snprintf(arguments, sizeof arguments, "%s %s %s", commands[i], run,
                 strcmp(commands[i], "compare") == 0 ? run : "");
        fl_expect(1, arguments, "huge.h5: /errors/teacher_forced/nmse: its shape says more values", NULL);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_texts_and_hashes_follow_the_stated_rules),
        TEST(test_data_that_changed_or_went_leave_null_and_a_note),
        TEST(test_a_run_id_from_a_file_does_not_leave_the_folder),
        TEST(test_strangers_files_are_reported_without_what_they_point_at),
        TEST(test_a_dataset_that_cannot_be_read_is_an_error),
        TEST(test_samples_are_those_of_lm_evaluation_harness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
