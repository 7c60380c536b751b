#!/usr/bin/env bash
# Makes the model under export/pt_en, from the pairs to the export:
#
#     bash recipes/pt_en/make.sh DATA FOLDER
#
# DATA holds ted/, pt_en/ (train.free.tsv.gz, books.free.tsv.gz, valid.tsv and the test
# sets) and wordnet/ (WordNet 3.1's data.noun and so on); FOLDER, made if it is missing,
# gets all that is made on the way. What is done is not done again, and training goes on
# where it stopped. TEACHER names a Python that has what `teach.py` and `dictionary.py`
# want; by default this one. The export goes to FOLDER/export/pt_en.
set -euo pipefail
data=$(realpath "${1:?name the folder of the data}")
folder=${2:?name a folder to work in}
recipe=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
cd "$folder"

tests=()
for test in ted/test ted/validation pt_en/tatoeba.test pt_en/valid; do
  tests+=(--test "$data/$test.tsv")
done
# What shares a side, or eight words in a row, with a test sentence is not trained on.
without_tests() { # SOURCE NAME
  [ -e "$2.tsv.gz" ] ||
    tfxformer overlap --data "$1" "${tests[@]}" --out "$2.tsv.gz" | tee "$2.overlap.txt"
}

for name in train books; do without_tests "$data/pt_en/$name.free.tsv.gz" "$name"; done
[ -e repaired.books.tsv.gz ] || python "$recipe/prepare.py" repair .
[ -e english.txt ] ||
  "${TEACHER:-python}" "$recipe/dictionary.py" "$data/wordnet" english.txt
[ -e more.tsv.gz ] || "${TEACHER:-python}" "$recipe/teach.py" .
[ -e made.dictionary.tsv.gz ] || python "$recipe/prepare.py" finish .
# Once more, since the teacher may have written what is in a test set.
for name in train books taught more dictionary; do
  without_tests "made.$name.tsv.gz" "clean.$name"
done
without_tests phrasebook clean.phrasebook
[ -e valid.tsv ] || ln -s "$data/pt_en/valid.tsv" valid.tsv

tfxformer train --config "$recipe/first.yaml" --out first
tfxformer train --config "$recipe/second.yaml" --from first --out second
[ -e export/pt_en ] ||
  tfxformer export --run second --checkpoint ema --precision float16 --to export --name pt_en
