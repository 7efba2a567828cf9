{{/* `gpushare verify` in the cluster: arguments and the pod that runs it. */}}

{{/* "true" where anything runs it. */}}
{{- define "gpushare.verifies" -}}
{{- if or .Values.verify.schedule .Values.verify.helmTest -}}true{{- end -}}
{{- end -}}

{{/* Specification of the pod: (list root "verify" (list "--record")). */}}
{{- define "gpushare.verifyPod" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values.verify -}}
serviceAccountName: {{ include "gpushare.name" (list $root "verify") }}
enableServiceLinks: false
restartPolicy: Never
securityContext:
  {{- include "gpushare.restrictedPod" $root | nindent 2 }}
containers:
  - name: verify
    image: {{ include "gpushare.image" (list $root $values.image) }}
    imagePullPolicy: {{ include "gpushare.pullPolicy" (list $root $values.image) }}
    args:
      - verify
      - --only=quick
      - --timeout=240
      - --namespace={{ $root.Release.Namespace }}
      {{- if include "gpushare.second" $root }}
      - --scheduler={{ $root.Values.scheduler.name }}
      {{- end }}
      {{- with $values.runtimeClassName }}
      - --runtime-class={{ . }}
      {{- end }}
      - --resource-domain={{ $root.Values.resourceDomain }}
      - --annotation-prefix={{ $root.Values.annotationPrefix }}
      {{- range index . 2 }}
      - {{ . }}
      {{- end }}
    resources:
      {{- include "gpushare.resources" $values.resources | nindent 6 }}
    securityContext:
      {{- include "gpushare.restrictedContainer" $root | nindent 6 }}
{{ include "gpushare.placement" (list $root "verify") }}
{{- end -}}
